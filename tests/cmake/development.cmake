# SPDX-License-Identifier: Apache-2.0
#
# What tests, examples and benchmarks share: strict warnings, JSON, the CUDA language, and the lines at the head of a
# source that say how it is built and run. None of it reaches a user of tide::tide.

# all       everything
# compiler  what depends on the compiler: headers, refused programs, an installed package, benchmarks, `static` tests,
#           tests compiled with other options, programs that no sanitizer runs; preset asan compiles and runs the rest
#           with Clang
# runtime   what runs on the host, for sanitizers: no checks of sources, no `static` tests, no program that is no test
# threads   of these, what starts threads, for ThreadSanitizer
# cuda      what nvcc compiles
set(tide_scopes all compiler runtime threads cuda)
set(TIDE_TEST_SCOPE all CACHE STRING "One of ${tide_scopes}: which tests and programs are built")
set_property(CACHE TIDE_TEST_SCOPE PROPERTY STRINGS ${tide_scopes})
if(NOT TIDE_TEST_SCOPE IN_LIST tide_scopes)
  message(FATAL_ERROR "tide: TIDE_TEST_SCOPE is one of ${tide_scopes}, not '${TIDE_TEST_SCOPE}'")
endif()
set(tide_checks_sources FALSE)
if(TIDE_TEST_SCOPE MATCHES "^(all|compiler)$")
  set(tide_checks_sources TRUE)
endif()
set(tide_sanitizing FALSE)
if(TIDE_TEST_SCOPE MATCHES "^(runtime|threads)$")
  set(tide_sanitizing TRUE)
endif()
if(TIDE_TEST_SCOPE STREQUAL cuda AND NOT TIDE_CUDA)
  message(FATAL_ERROR "tide: TIDE_TEST_SCOPE=cuda needs TIDE_CUDA=ON")
endif()

if(TIDE_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(CMAKE_CUDA_COMPILER ${TIDE_NVCC})
  endif()
  if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  enable_language(CUDA)
  # nvcc gives its host compiler its own -O after all other options, so that none would count: each target says which.
  string(REGEX REPLACE "-O[0-3]" "" CMAKE_CUDA_FLAGS_RELEASE "${CMAKE_CUDA_FLAGS_RELEASE}")
  set(CMAKE_CUDA_RUNTIME_LIBRARY None) # tide::cuda brings it; a second, static one in the program would be a trap
endif()

find_path(TIDE_NLOHMANN_INCLUDE nlohmann/json.hpp DOC "Folder that holds nlohmann/json.hpp")
if(NOT TIDE_NLOHMANN_INCLUDE)
  message(FATAL_ERROR "tide: tests, examples and benchmarks need nlohmann/json.hpp: install nlohmann-json3-dev "
                      "(Debian) or set TIDE_NLOHMANN_INCLUDE to the folder that holds nlohmann/json.hpp")
endif()

# For what a compiler need not make fast; GCC takes a fourth less for -Og than for -O1. Sanitizers have options of their
# own.
set(tide_quick_options "")
if(NOT tide_sanitizing)
  set(tide_quick_options $<IF:$<CXX_COMPILER_ID:GNU>,-Og,-O1>)
endif()
# For what runs so briefly, or not at all, that even -O1 costs Clang more than it saves: under AddressSanitizer, it takes
# three times as long as -O0.
set(tide_brief_options ${tide_quick_options})
if(TIDE_TEST_SCOPE MATCHES "^(compiler|runtime)$")
  set(tide_brief_options -O0)
endif()

# CMAKE_CXX_EXTENSIONS keeps its default, as a user's does: GCC fuses multiply and add in gnu++20 and not in c++20.
add_library(tide_development INTERFACE)
target_include_directories(tide_development SYSTEM INTERFACE ${TIDE_NLOHMANN_INCLUDE})
target_compile_options(
  tide_development
  INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow;-Werror>
    # GCC begins to collect its garbage at a GiB, not at 128 MiB: big units take a fifth less time.
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1048576>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<CXX_COMPILER_ID:GNU>>:-Xcompiler=--param=ggc-min-heapsize=1048576>
    # GCC 12 warns of overlap in std::string's own operator+ (https://gcc.gnu.org/PR105651); delete with GCC 12.
    $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
    # At -O3 its optimizer also warns of paths inside std::string and std::vector that no program can take: seen, not fatal.
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=stringop-overflow;-Wno-error=stringop-overread>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=free-nonheap-object;-Wno-error=array-bounds>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=maybe-uninitialized;-Wno-error=nonnull>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=dangling-pointer;-Wno-error=use-after-free>
    # Newer compilers than those of CI (GCC 12, Clang 14) may warn of more, also wrongly: that stops nobody's build.
    $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>:-Wno-error>
    $<$<AND:$<COMPILE_LANG_AND_ID:CXX,Clang>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,15>>:-Wno-error>
    # nvcc's own warnings are errors; those of its host compiler are seen, not fatal, for the reasons above.
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Wno-restrict,-Wno-error>)

# Reads VALUE of the line `// KEY: VALUE` (`# KEY: VALUE` in a script) among the first lines of FILE; empty if none.
function(tide_read_head file key result)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} head LIMIT 2000)
  set(value "")
  if("\n${head}" MATCHES "\n(//|#) ${key}: ([^\n]*)")
    string(STRIP "${CMAKE_MATCH_2}" value)
  endif()
  set(${result} "${value}" PARENT_SCOPE)
endfunction()

# Gives TEST the labels DEFAULTS, those of its source's line `// labels:`, and a time limit (`// timeout: SECONDS`).
# The labels static, gpu, gpu2, nodes and no_gpu say where a test belongs and replace `host`; others are added.
function(tide_describe_test test source default_labels)
  tide_read_head(${source} labels labels)
  tide_read_head(${source} timeout timeout)
  separate_arguments(labels)
  if(labels MATCHES "(^|;)(static|gpu|gpu2|nodes|no_gpu)(;|$)")
    list(REMOVE_ITEM default_labels host)
  endif()
  list(APPEND labels ${default_labels})
  list(REMOVE_DUPLICATES labels)
  if(NOT timeout)
    set(timeout 120)
  endif()
  if(tide_sanitizing)
    math(EXPR timeout "5 * ${timeout}")
  endif()
  # ctest begins with the highest cost: what may take long must not trail.
  set_tests_properties(${test} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout} COST ${timeout})
  if(labels MATCHES "(^|;)(gpu|gpu2|nodes)(;|$)") # one at a time; a machine with too few GPUs is told by exit code 77
    set_tests_properties(${test} PROPERTIES RESOURCE_LOCK gpu SKIP_RETURN_CODE 77)
  endif()
endfunction()

# One program for each X.cpp of the current folder, X.cu instead where CUDA is enabled; NN_X is a test, too, and shows
# how tide is used, not how fast it is, and tide_X prints: half of a compiler's time is saved.
# Programs that a scope has no use for are left to `cmake --build ... --target X`. A line `// links: CUDA::cublas` at the
# head of X.cu names what it links besides; where that is missing, X.cpp is built.
function(tide_add_programs kind)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
  foreach(source IN LISTS sources)
    if(TIDE_CUDA AND source MATCHES "\\.cu$")
      get_filename_component(name ${source} NAME_WE)
      tide_read_head(${source} links links.${name})
      separate_arguments(links.${name})
      foreach(library IN LISTS links.${name})
        if(NOT TARGET ${library})
          message(STATUS "tide: ${name}.cu needs ${library}, which CUDA at ${CUDAToolkit_LIBRARY_DIR} lacks: "
                         "${name}.cpp is built instead")
          list(REMOVE_ITEM sources ${source})
        endif()
      endforeach()
    endif()
  endforeach()
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    set(on_demand FALSE)
    set(is_test FALSE)
    set(is_quick FALSE)
    if(kind STREQUAL example AND name MATCHES "^[0-9][0-9]_")
      set(is_test TRUE)
    endif()
    if(is_test OR (kind STREQUAL example AND (name MATCHES "^tide_" OR TIDE_TEST_SCOPE STREQUAL compiler)))
      set(is_quick TRUE)
    endif()
    if(source MATCHES "\\.cu$")
      if(NOT TIDE_CUDA)
        continue()
      endif()
      set(library tide::cuda ${links.${name}})
      set(label gpu)
    else()
      if(TIDE_CUDA AND "${CMAKE_CURRENT_SOURCE_DIR}/${name}.cu" IN_LIST sources)
        continue()
      endif()
      set(library tide::tide)
      set(label host)
      if((TIDE_TEST_SCOPE STREQUAL cuda AND NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cu)
         OR (TIDE_TEST_SCOPE STREQUAL compiler AND is_test)
         OR (tide_sanitizing AND NOT is_test))
        set(on_demand TRUE)
      endif()
    endif()
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE ${library} tide_development)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ${on_demand})
    if(source MATCHES "\\.cu$")
      set(option -O3)
      if(is_quick)
        set(option ${tide_quick_options})
      endif()
      target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Xcompiler=${option}>)
    elseif(is_quick)
      target_compile_options(${name} PRIVATE ${tide_brief_options})
    endif()
    if(TIDE_BUILD_TESTS AND is_test AND NOT on_demand)
      add_test(NAME examples/${name} COMMAND ${name})
      tide_describe_test(examples/${name} ${source} "example;${label}")
    endif()
  endforeach()
endfunction()
