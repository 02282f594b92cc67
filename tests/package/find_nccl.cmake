# SPDX-License-Identifier: Apache-2.0
#
# FindNCCL in trees of the shapes that there are, made of empty files: it takes the library beside the header, also one
# that is only libnccl.so.2, and where something is missing it says what to set.

# configure(TREE RESULT OUTPUT): looks in a tree, and nowhere else.
function(configure tree result output)
  file(REMOVE_RECURSE ${WORK}/build)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${TIDE}/tests/package/find_nccl -B ${WORK}/build -G ${GENERATOR}
            -DCMAKE_MAKE_PROGRAM=${MAKE} -DCMAKE_CXX_COMPILER=${CXX} -DTIDE=${TIDE} -DNCCL_ROOT=${tree}
            -DCMAKE_FIND_ROOT_PATH=${tree} -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY
            -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY
    RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  set(${result} ${code} PARENT_SCOPE)
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

function(expect name library)
  set(tree ${WORK}/${name})
  file(WRITE ${tree}/include/nccl.h "#define NCCL_MAJOR 2\n#define NCCL_MINOR 32\n#define NCCL_PATCH 3\n")
  file(WRITE ${tree}/${library} "")
  configure(${tree} code text)
  if(NOT code EQUAL 0 OR NOT text MATCHES "found [^ ]*${library} of 2\\.32\\.3")
    message(FATAL_ERROR "find_nccl: of the tree '${name}' it said\n${text}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
expect(prefix lib/libnccl.so)
expect(wheel lib/libnccl.so.2)
expect(toolkit lib64/libnccl.so)
expect(debian lib/x86_64-linux-gnu/libnccl.so)

# A header without a library.
file(WRITE ${WORK}/half/include/nccl.h "#define NCCL_MAJOR 2\n#define NCCL_MINOR 32\n#define NCCL_PATCH 3\n")
configure(${WORK}/half code text)
string(REGEX REPLACE "[ \n]+" " " text "${text}")
if(code EQUAL 0 OR NOT text MATCHES "set NCCL_ROOT to a folder with include/nccl.h and lib/libnccl.so or lib/libnccl.so.2")
  message(FATAL_ERROR "find_nccl: of a tree without a library it said\n${text}")
endif()
