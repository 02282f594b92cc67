# SPDX-License-Identifier: Apache-2.0
#
# Defines tide::cuda on top of tide::tide: for TIDE_CUDA=ON in this tree and for the component `cuda` of the package.
# Where it cannot, TIDE_CUDA_MISSING says what to install or to set.

set(TIDE_CUDA_MISSING "")
set(tide_toolkit_places ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH})

# PyPI's wheels have lib/ instead of lib64/ and libcudart.so.13 without libcudart.so; FindCUDAToolkit 3.25 sees neither.
find_program(TIDE_NVCC nvcc HINTS ${tide_toolkit_places} PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES bin)
mark_as_advanced(TIDE_NVCC)
if(TIDE_NVCC)
  get_filename_component(tide_toolkit ${TIDE_NVCC} REALPATH)
  get_filename_component(tide_toolkit ${tide_toolkit}/../.. ABSOLUTE)
  find_library(CUDA_CUDART NAMES cudart libcudart.so.13 libcudart.so.12 NAMES_PER_DIR PATHS ${tide_toolkit}
               PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib targets/sbsa-linux/lib NO_DEFAULT_PATH)
  if(CUDA_CUDART)
    set(CUDA_cudart_LIBRARY ${CUDA_CUDART} CACHE FILEPATH "What CUDA::cudart links")
    mark_as_advanced(CUDA_cudart_LIBRARY)
  endif()
endif()
find_package(CUDAToolkit QUIET)
if(NOT CUDAToolkit_FOUND)
  string(APPEND TIDE_CUDA_MISSING "the CUDA toolkit (nvcc: ${TIDE_NVCC}; libcudart: ${CUDA_CUDART}), "
                                  "set CUDAToolkit_ROOT to the folder that holds bin/nvcc; ")
endif()

# A machine with a driver has libcuda.so.1, perhaps without the toolkit's stub.
find_library(TIDE_CUDA_DRIVER NAMES cuda libcuda.so.1 NAMES_PER_DIR HINTS ${tide_toolkit} ${tide_toolkit_places}
             PATHS /usr/local/cuda /usr/local/nvidia
             PATH_SUFFIXES lib64/stubs lib/stubs targets/x86_64-linux/lib/stubs targets/sbsa-linux/lib/stubs lib64 lib)
mark_as_advanced(TIDE_CUDA_DRIVER)
if(NOT TIDE_CUDA_DRIVER)
  string(APPEND TIDE_CUDA_MISSING "libcuda.so (the toolkit's stub or the driver's own), set TIDE_CUDA_DRIVER to it; ")
endif()

find_package(NCCL QUIET)
if(NOT NCCL_FOUND)
  string(APPEND TIDE_CUDA_MISSING "NCCL (nccl.h: ${NCCL_INCLUDE_DIR}; library: ${NCCL_LIBRARY}), set NCCL_ROOT to a "
                                  "folder with include/nccl.h and lib/libnccl.so or lib/libnccl.so.2; ")
endif()

if(NOT TIDE_CUDA_MISSING AND NOT TARGET tide::cuda)
  add_library(tide::cuda INTERFACE IMPORTED GLOBAL)
  # The driver by name, not by path: a path would put the folder of the stub into the program's rpath.
  get_filename_component(tide_driver_name ${TIDE_CUDA_DRIVER} NAME)
  get_filename_component(tide_driver_dir ${TIDE_CUDA_DRIVER} DIRECTORY)
  target_link_libraries(tide::cuda INTERFACE tide::tide CUDA::cudart NCCL::NCCL -L${tide_driver_dir}
                                             -l:${tide_driver_name})
  # CMake 3.25 knows CUDA standards up to 17 and drops a 20 without a word.
  target_compile_options(tide::cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
endif()
