# SPDX-License-Identifier: Apache-2.0
#
# Builds and runs the consumer in a fresh folder:
#
#   cmake -DHOW=... -DTIDE=<repository> -DVERSION=... -DWORK=<folder> -DCXX=<compiler> -DGENERATOR=... -DMAKE=... -P run.cmake
#
#   installed     find_package after an install; everything that the consumer has
#   moved         find_package after the installed folder was moved and all else deleted
#   subdirectory  add_subdirectory
#   fetched       FetchContent from a local path
#   without_nvcc  add_subdirectory where the only nvcc is one that tells when it is called

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(settings -G ${GENERATOR} -DCMAKE_MAKE_PROGRAM=${MAKE} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Debug)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    string(REPLACE "\n" "\n  " output "  ${output}") # indented, or .ci/run would count the consumer's tests
    list(JOIN ARGV " " command)
    message(NOTICE "${command}\n${output}")
    message(FATAL_ERROR "the command above failed (${result})")
  endif()
endfunction()

set(prefix ${WORK}/prefix)
if(HOW MATCHES "^(installed|moved)$")
  run(${CMAKE_COMMAND} -S ${TIDE} -B ${WORK}/tide ${settings} -DTIDE_BUILD_TESTS=OFF -DTIDE_BUILD_EXAMPLES=OFF
      -DTIDE_BUILD_BENCHMARKS=OFF)
  run(${CMAKE_COMMAND} --install ${WORK}/tide --prefix ${prefix})
  file(REMOVE_RECURSE ${WORK}/tide)
endif()
if(HOW STREQUAL moved)
  file(RENAME ${prefix} "${WORK}/elsewhere")
  set(prefix "${WORK}/elsewhere")
endif()

set(way ${HOW})
set(called ${WORK}/nvcc-was-called)
if(HOW STREQUAL without_nvcc)
  set(way subdirectory)
  file(WRITE ${WORK}/bin/nvcc "#!/bin/sh\necho \"$@\" >>${called}\nexit 1\n")
  file(CHMOD ${WORK}/bin/nvcc PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(ENV{PATH} "${WORK}/bin:/usr/bin:/bin")
  foreach(name IN ITEMS CUDACXX CUDAHOSTCXX CUDA_HOME CUDA_PATH CUDAToolkit_ROOT NCCL_ROOT LIBRARY_PATH CPATH)
    unset(ENV{${name}})
  endforeach()
  list(APPEND settings -DCMAKE_IGNORE_PREFIX_PATH=/usr/local/cuda)
endif()

set(full OFF)
if(HOW STREQUAL installed)
  set(full ON)
endif()
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/consumer ${settings} -DCMAKE_PREFIX_PATH=${prefix}
    -DCONSUMER_HOW=${way} -DCONSUMER_FULL=${full} -DCONSUMER_TIDE=${TIDE} -DCONSUMER_VERSION=${VERSION}
    -DCONSUMER_PREFIX=${prefix})
run(${CMAKE_COMMAND} --build ${WORK}/consumer)
run(${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/consumer --output-on-failure --no-tests=error --timeout 60)
if(full)
  file(COPY ${CMAKE_CURRENT_LIST_DIR}/my_trainer DESTINATION ${WORK})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/first_gather.cpp ${WORK}/my_trainer/main.cpp COPYONLY)
  run(${CMAKE_COMMAND} -S ${WORK}/my_trainer -B ${WORK}/my_trainer/build ${settings} -DCMAKE_PREFIX_PATH=${prefix})
  run(${CMAKE_COMMAND} --build ${WORK}/my_trainer/build)
  run(${WORK}/my_trainer/build/my_trainer)
endif()
if(EXISTS ${called})
  file(READ ${called} calls)
  message(FATAL_ERROR "the build of a project without CUDA called nvcc:\n${calls}")
endif()
