# The rules of the build that every folder shares.

option(HOLT_TESTS "Build the tests" ON)
option(HOLT_BENCH "Build the benchmarks" ON)
option(HOLT_FUZZ "Build the fuzzers (clang only)" OFF)
set(HOLT_SANITIZE "" CACHE STRING "Sanitizers for everything but the static agent: address, thread or empty")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_program(HOLT_CCACHE ccache)
if(HOLT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HOLT_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${HOLT_CCACHE})
endif()

add_library(holt_options INTERFACE)
target_compile_options(holt_options INTERFACE -Wall -Wextra -Werror -Wnon-virtual-dtor -Woverloaded-virtual)
if(HOLT_SANITIZE)
  add_compile_options(-fsanitize=${HOLT_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${HOLT_SANITIZE})
  if(HOLT_SANITIZE MATCHES undefined)
    # CAF's headers form references to objects that don't live yet, and its library carries no type information for vptr.
    add_compile_options(-fno-sanitize=null,vptr -fno-sanitize-recover=undefined)
  endif()
endif()

# holt_library(NAME SOURCES ... [FOLDERS ...] [LINKS ...] [PRIVATE_LINKS ...])
#
# A static library whose files may include "<folder>/…" only of the folders it lists (default: its own top folder) and of
# what it links. It works by giving each top folder an include directory of its own, which holds a link to that folder
# and nothing else: an include in a forbidden direction does not compile.
function(holt_folder_include FOLDER RESULT)
  set(directory ${CMAKE_BINARY_DIR}/include/${FOLDER})
  file(MAKE_DIRECTORY ${directory})
  if(NOT EXISTS ${directory}/${FOLDER})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${FOLDER} ${directory}/${FOLDER} SYMBOLIC)
  endif()
  set(${RESULT} ${directory} PARENT_SCOPE)
endfunction()

function(holt_library NAME)
  cmake_parse_arguments(arg "" "FOLDER" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(holt_${NAME} STATIC ${arg_SOURCES})
  add_library(holt::${NAME} ALIAS holt_${NAME})
  if(NOT arg_FOLDER)
    set(arg_FOLDER ${NAME})
  endif()
  holt_folder_include(${arg_FOLDER} directory)
  target_include_directories(holt_${NAME} PUBLIC ${directory})
  target_link_libraries(holt_${NAME} PUBLIC ${arg_LINKS} PRIVATE holt_options ${arg_PRIVATE_LINKS})
endfunction()

# holt_test(NAME SOURCES ... LINKS ... [LABELS ...] [TIMEOUT seconds] [ENVIRONMENT ...])
#
# A GoogleTest program, run as one CTest test. Its files may include "tests/…" (support) and what it links. Its folder
# below tests/ is a label of it, and the target tests_<folder> builds all of that folder.
function(holt_test NAME)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINKS;LABELS;ENVIRONMENT" ${ARGN})
  add_executable(${NAME} ${arg_SOURCES})
  holt_folder_include(tests directory)
  target_include_directories(${NAME} PRIVATE ${directory})
  target_link_libraries(${NAME} PRIVATE ${arg_LINKS} holt_options GTest::gtest GTest::gmock GTest::gtest_main)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_test(NAME ${NAME} COMMAND ${NAME})
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "/.*" "" folder "${folder}")
  list(APPEND arg_LABELS ${folder})
  list(REMOVE_DUPLICATES arg_LABELS)
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" ENVIRONMENT "${arg_ENVIRONMENT}")
  if(folder MATCHES "^(integration|faults|clients)$")
    # These drive whole servers and sandboxes and look at the clock: one at a time.
    set_tests_properties(${NAME} PROPERTIES RUN_SERIAL ON)
  endif()
  if(NOT TARGET tests_${folder})
    add_custom_target(tests_${folder})
  endif()
  add_dependencies(tests_${folder} ${NAME})
endfunction()

# holt_fuzzer(NAME SOURCES ... LINKS ...)  with clang and HOLT_FUZZ only: libFuzzer; tests run it for 20 s.
# Seeds are read from corpus/NAME/ beside the sources; what a run finds stays in <build>/fuzzers/found/NAME/.
# The target fuzzers builds all; <build>/fuzzers holds the programs and a test list of them alone (script/test reads it).
if(HOLT_FUZZ)
  set(HOLT_FUZZ_DIR ${CMAKE_BINARY_DIR}/fuzzers)
  file(WRITE ${HOLT_FUZZ_DIR}/CTestTestfile.cmake "")
  add_custom_target(fuzzers)
endif()
function(holt_fuzzer NAME)
  if(NOT HOLT_FUZZ)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${NAME} ${arg_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${arg_LINKS} holt_options)
  target_link_options(${NAME} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${HOLT_FUZZ_DIR})
  add_dependencies(fuzzers ${NAME})
  set(corpus "")
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${NAME})
    file(MAKE_DIRECTORY ${HOLT_FUZZ_DIR}/found/${NAME})
    set(corpus "\"${HOLT_FUZZ_DIR}/found/${NAME}\" \"${CMAKE_CURRENT_SOURCE_DIR}/corpus/${NAME}\"")
  endif()
  file(APPEND ${HOLT_FUZZ_DIR}/CTestTestfile.cmake
       "add_test(${NAME} \"${HOLT_FUZZ_DIR}/${NAME}\" ${corpus} -max_total_time=20 -timeout=5 -rss_limit_mb=1024 -verbosity=0)\n"
       "set_tests_properties(${NAME} PROPERTIES TIMEOUT 90 LABELS fuzz)\n")
endfunction()

# holt_bench(NAME SOURCES ... LINKS ...)  a program of bench/; the target bench_programs builds all that script/bench runs.
function(holt_bench NAME)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${NAME} ${arg_SOURCES})
  holt_folder_include(bench directory)
  target_include_directories(${NAME} PRIVATE ${directory})
  target_link_libraries(${NAME} PRIVATE ${arg_LINKS} holt_options)
  if(NOT TARGET bench_programs)
    add_custom_target(bench_programs)
  endif()
  add_dependencies(bench_programs ${NAME})
endfunction()
