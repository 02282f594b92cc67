# SPDX-License-Identifier: Apache-2.0
#
# Finds NCCL in any of its usual shapes: Debian's packages, a folder NCCL_ROOT (NCCL_HOME) with include/ and lib/, a
# PyPI wheel's nvidia/nccl, the CUDA toolkit's own folder; also where lib/ holds libnccl.so.2 and no libnccl.so.
#
#   NCCL::NCCL     imported target
#   NCCL_VERSION   from nccl.h; the library found at run time can be another one

set(nccl_hints ${NCCL_ROOT} $ENV{NCCL_ROOT} ${NCCL_HOME} $ENV{NCCL_HOME})
set(nccl_places ${CUDAToolkit_LIBRARY_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_hints} PATHS ${nccl_places} ${CUDAToolkit_INCLUDE_DIRS}
          PATH_SUFFIXES include)
# A header and a library of different releases link, and then fail at run time: look beside the header first.
if(NCCL_INCLUDE_DIR)
  get_filename_component(nccl_beside ${NCCL_INCLUDE_DIR} DIRECTORY)
endif()
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR HINTS ${nccl_hints} ${nccl_beside} PATHS ${nccl_places}
             PATH_SUFFIXES lib lib64 lib/x86_64-linux-gnu lib/aarch64-linux-gnu)

if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h nccl_lines REGEX "#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3" NCCL_VERSION
                       "${nccl_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  NCCL
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR
  VERSION_VAR NCCL_VERSION
  REASON_FAILURE_MESSAGE
    "set NCCL_ROOT to a folder with include/nccl.h and lib/libnccl.so or lib/libnccl.so.2")
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  # Not a system folder: nvcc searches its toolkit's first among those, where an older nccl.h may lie.
  set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY} SYSTEM OFF
                                              INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
