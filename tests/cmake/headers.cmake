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

if(TIDE_TEST_SCOPE STREQUAL all)
  set(host_headers ${tide_headers})
  list(FILTER host_headers INCLUDE REGEX "\\.hpp$")
  tide_write_header_units(headers.host cpp ${host_headers})
  add_library(headers.host.alone OBJECT ${ALONE_SOURCES})
  target_link_libraries(headers.host.alone PRIVATE tide::tide tide_development)
  set_target_properties(headers.host.alone PROPERTIES CXX_COMPILER_LAUNCHER
                                                      "bash;${CMAKE_CURRENT_LIST_DIR}/check_syntax.sh")
  add_executable(headers.host ${ALL_SOURCES})
  target_link_libraries(headers.host PRIVATE tide::tide tide_development)
  target_compile_options(headers.host PRIVATE -O0)
  set_target_properties(headers.host PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/headers)
  add_test(NAME headers/host COMMAND headers.host)
  set_tests_properties(headers/host PROPERTIES LABELS header TIMEOUT 10)
endif()

if(TIDE_CUDA)
  tide_write_header_units(headers.nvcc cu ${tide_headers})
  # As PTX: nvcc's front end reads host and device code alike, and the units of the program below go all the way.
  add_library(headers.nvcc.alone OBJECT ${ALONE_SOURCES})
  target_link_libraries(headers.nvcc.alone PRIVATE tide::cuda tide_development)
  target_compile_options(headers.nvcc.alone PRIVATE -Xcicc=-O0)
  set_target_properties(headers.nvcc.alone PROPERTIES CUDA_PTX_COMPILATION ON)
  # No test: to start the program takes a driver, and that it was linked is the proof.
  add_executable(headers.nvcc ${ALL_SOURCES})
  target_link_libraries(headers.nvcc PRIVATE tide::cuda tide_development)
  target_compile_options(headers.nvcc PRIVATE -Xcompiler=-O0 -Xcicc=-O0 -Xptxas=-O0)
  set_target_properties(headers.nvcc PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/headers)
endif()
