# SPDX-License-Identifier: Apache-2.0
#
# One test for each case and each control of tests/compile_fail/**, for each compiler of the build; the work is done by
# check_compile_fail.py.

function(tide_add_compile_fail_tests suffix)
  cmake_parse_arguments(PARSE_ARGV 1 arg "FIRST_ONLY" "" "SOURCES;COMMAND")
  foreach(source IN LISTS arg_SOURCES)
    set(path ${CMAKE_CURRENT_SOURCE_DIR}/compile_fail/${source})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} text)
    string(REGEX MATCHALL "TIDE_CASE == [0-9]+" cases "${text}")
    list(TRANSFORM cases REPLACE "TIDE_CASE == " "")
    if(NOT cases)
      message(FATAL_ERROR "tide: tests/compile_fail/${source} has no line '#if TIDE_CASE == 1  // expect: ...'")
    endif()
    set(controls control)
    if(arg_FIRST_ONLY AND source MATCHES "\\.cpp$") # whose control the host's compilers see
      list(GET cases 0 cases)
      set(controls "")
    endif()
    string(REGEX REPLACE "\\.[a-z]+$" "" name ${source})
    foreach(case IN LISTS controls cases)
      set(test compile_fail/${name}/${case}${suffix})
      add_test(NAME ${test} COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/cmake/check_compile_fail.py
                                    ${case} ${path} ${arg_COMMAND} -I${PROJECT_SOURCE_DIR}/include)
      set_tests_properties(${test} PROPERTIES LABELS compile-fail TIMEOUT 300)
    endforeach()
  endforeach()
endfunction()

file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/compile_fail
     compile_fail/*.cpp compile_fail/*.cu)
if(tide_checks_sources)
  set(host_sources ${sources})
  list(FILTER host_sources INCLUDE REGEX "\\.cpp$")
  set(quiet -fno-diagnostics-show-caret) # our words must come from the message, not from a quoted source line
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    set(quiet -fno-caret-diagnostics)
  endif()
  tide_add_compile_fail_tests("" SOURCES ${host_sources} COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only
                                                                      ${quiet})
endif()
if(TIDE_CUDA)
  # -ptx: nvcc's front end sees host and device code alike, and half of its passes are saved.
  set(includes ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE_DIR})
  list(TRANSFORM includes PREPEND -I)
  # The sentences are checked case by case with the host's compilers; here one case shows that nvcc says them too.
  tide_add_compile_fail_tests(/nvcc FIRST_ONLY SOURCES ${sources}
                              COMMAND ${CMAKE_CUDA_COMPILER} -ccbin ${CMAKE_CUDA_HOST_COMPILER} -x cu -std=c++20
                                      -arch=sm_90 -ptx -o /dev/null ${includes})
endif()
