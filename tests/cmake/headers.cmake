# SPDX-License-Identifier: Apache-2.0
#
# Compiles every header as the first, and again as the second, line of a translation unit of its own, and links units
# that include all of them, so that each definition is there twice and a missing `inline` fails.
# The list is the folder's content: a header cannot be forgotten.

# Writes the translation units: ALONE_SOURCES, one for each header, and ALL_SOURCES, two with all, first and last first.
function(tide_write_header_units folder extension)
  set(forward "")
  set(backward "")
  set(alone "")
  foreach(header IN LISTS ARGN)
    string(REPLACE "${PROJECT_SOURCE_DIR}/include/" "" name ${header})
    set(source ${CMAKE_CURRENT_BINARY_DIR}/${folder}/${name}.${extension})
    file(CONFIGURE OUTPUT ${source} CONTENT "#include <@name@>\n#include <@name@>\n" @ONLY)
    list(APPEND alone ${source})
    string(APPEND forward "#include <${name}>\n")
    string(PREPEND backward "#include <${name}>\n")
  endforeach()
  set(all ${CMAKE_CURRENT_BINARY_DIR}/${folder}/forward.${extension}
          ${CMAKE_CURRENT_BINARY_DIR}/${folder}/backward.${extension})
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${folder}/forward.${extension} CONTENT "@forward@" @ONLY)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${folder}/backward.${extension} CONTENT "@backward@int main() {}\n"
       @ONLY)
  set(ALONE_SOURCES ${alone} PARENT_SCOPE)
  set(ALL_SOURCES ${all} PARENT_SCOPE)
endfunction()

if(tide_checks_sources)
  set(host_headers ${tide_headers})
  list(FILTER host_headers INCLUDE REGEX "\\.hpp$")
  tide_write_header_units(headers.host cpp ${host_headers})
  add_library(headers.host.alone OBJECT ${ALONE_SOURCES})
  target_link_libraries(headers.host.alone PRIVATE tide::tide tide_development)
  set_target_properties(headers.host.alone PROPERTIES CXX_COMPILER_LAUNCHER
                                                      "bash;${CMAKE_CURRENT_LIST_DIR}/check_syntax.sh")
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # Half of the time. Here tide's own includes are checked; Clang, with nothing before a header, checks those of the
    # standard library, too, which is the same for both.
    target_precompile_headers(headers.host.alone PRIVATE ${tide_test_standard_headers})
  endif()
  add_executable(headers.host ${ALL_SOURCES})
  target_link_libraries(headers.host PRIVATE tide::tide tide_development)
  target_compile_options(headers.host PRIVATE -O0)
  set_target_properties(headers.host PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/headers)
  add_test(NAME headers/host COMMAND headers.host)
  set_tests_properties(headers/host PROPERTIES LABELS header TIMEOUT 10)
endif()

if(TIDE_CUDA)
  set(cuda_headers ${tide_headers})
  list(FILTER cuda_headers INCLUDE REGEX "\\.cuh$")
  tide_write_header_units(headers.nvcc.alone cu ${cuda_headers})
  # As PTX: nvcc's front end reads host and device code alike. Only what no other compiler reads alone; the units of the
  # program below have all headers, in both orders, and go all the way.
  add_library(headers.nvcc.alone OBJECT ${ALONE_SOURCES})
  target_link_libraries(headers.nvcc.alone PRIVATE tide::cuda tide_development)
  target_compile_options(headers.nvcc.alone PRIVATE -Xcicc=-O0)
  set_target_properties(headers.nvcc.alone PROPERTIES CUDA_PTX_COMPILATION ON)
  tide_write_header_units(headers.nvcc cu ${tide_headers})
  # No test: to start the program takes a driver, and that it was linked is the proof.
  add_executable(headers.nvcc ${ALL_SOURCES})
  target_link_libraries(headers.nvcc PRIVATE tide::cuda tide_development)
  target_compile_options(headers.nvcc PRIVATE -Xcompiler=-O0 -Xcicc=-O0 -Xptxas=-O0)
  set_target_properties(headers.nvcc PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/headers)

  # Rows of docs/failure-modes.md that only nvcc can show; that it compiles is the proof.
  add_library(failure_modes.nvcc OBJECT ${CMAKE_CURRENT_SOURCE_DIR}/failure_modes/nvcc_rows.cu)
  target_link_libraries(failure_modes.nvcc PRIVATE tide::cuda tide_development)
  target_compile_options(failure_modes.nvcc PRIVATE -Xcompiler=-fno-exceptions,-fno-rtti,-O0 -Xcicc=-O0 -Xptxas=-O0)
  set_target_properties(failure_modes.nvcc PROPERTIES CUDA_SEPARABLE_COMPILATION ON)
  add_test(NAME failure_modes/hidden_kernels COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/check_hidden.sh
                                                    $<TARGET_OBJECTS:failure_modes.nvcc>)
  set_tests_properties(failure_modes/hidden_kernels PROPERTIES LABELS package TIMEOUT 60)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-code OUTPUT_VARIABLE known)
  foreach(architecture IN ITEMS 80 100 120)
    if(NOT known MATCHES "sm_${architecture}[^0-9]")
      continue()
    endif()
    add_test(NAME failure_modes/architectures/${architecture}
             COMMAND ${CMAKE_CUDA_COMPILER} -ccbin ${CMAKE_CUDA_HOST_COMPILER} -std=c++20 -arch=sm_${architecture} -cubin
                     -o /dev/null -I${PROJECT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/failure_modes/architectures.cu)
    set_tests_properties(failure_modes/architectures/${architecture} PROPERTIES LABELS package TIMEOUT 120)
  endforeach()
endif()
