# Declares modules, tests and fuzz targets, and holds them to tools/layers.txt: a module that links
# another one which its line does not name is a configure error.

set_property(GLOBAL PROPERTY GLOBAL_DEPENDS_NO_CYCLES ON)

file(STRINGS "${CMAKE_SOURCE_DIR}/tools/layers.txt" _hr_layer_lines REGEX "^[0-9]")
foreach(_line IN LISTS _hr_layer_lines)
  string(REGEX MATCH "^[0-9]+ +([a-z]+) *:(.*)$" _ "${_line}")
  set(_name "${CMAKE_MATCH_1}")
  string(STRIP "${CMAKE_MATCH_2}" _deps)
  string(REPLACE " " ";" _deps "${_deps}")
  set(HR_MAY_USE_${_name} "${_deps}")
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tools/layers.txt")

# Compiles the sources of a target several at once, which halves the time. Off for clang-tidy, which
# looks at one file at a time.
function(headrace_compile_together target)
  if(HEADRACE_TOGETHER GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${HEADRACE_TOGETHER})
  endif()
endfunction()

# headrace_compile_alone(a.cc ...): files of the folder that the above must not take: they are compiled
# once for each kind of processor, or have names of their own that others have too.
function(headrace_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Modules that wait for others more than they compute: under a sanitizer it takes half the time to compile
# them without optimization, and their tests take no longer.
set(HEADRACE_MODULES_THAT_WAIT net object agent cli)

# headrace_module(NAME SOURCES a.cc ... [USES base env ...] [LIBRARIES fmt::fmt ...])
# makes the static library headrace_NAME.
function(headrace_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  if(NOT DEFINED HR_MAY_USE_${name})
    message(FATAL_ERROR "module '${name}' is not in tools/layers.txt")
  endif()
  add_library(headrace_${name} STATIC ${ARG_SOURCES})
  headrace_compile_together(headrace_${name})
  target_include_directories(headrace_${name} PUBLIC "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}/include")
  foreach(_dep IN LISTS ARG_USES)
    if(NOT _dep IN_LIST HR_MAY_USE_${name})
      message(FATAL_ERROR "module '${name}' may not use '${_dep}': see tools/layers.txt")
    endif()
    target_link_libraries(headrace_${name} PUBLIC headrace_${_dep})
  endforeach()
  target_link_libraries(headrace_${name} PUBLIC headrace_options ${ARG_LIBRARIES})
  if(HEADRACE_SANITIZE AND name IN_LIST HEADRACE_MODULES_THAT_WAIT)
    target_compile_options(headrace_${name} PRIVATE -O0)
  endif()
endfunction()

# How tests are compiled: each runs once for each time that it is compiled, so optimizing it costs more
# than it saves. Sanitizers multiply that cost, and find more in what is not optimized; what is tested
# is optimized all the same.
if(HEADRACE_SANITIZE)
  set(HEADRACE_TEST_OPTIONS -O0)
else()
  set(HEADRACE_TEST_OPTIONS -O1)
endif()

# Gives a test program the precompiled headers of GoogleTest, which all of them share.
function(headrace_precompile_test_headers name)
  set(_options ${HEADRACE_TEST_OPTIONS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND _options -fpch-preprocess)  # so that ccache can hold what is compiled with them
  else()
    list(APPEND _options "SHELL:-Xclang -fno-pch-timestamp")
  endif()
  if(NOT TARGET headrace_test_headers)
    file(WRITE "${CMAKE_BINARY_DIR}/test_headers.cc" "// Only its precompiled headers are used.\n")
    add_executable(headrace_test_headers EXCLUDE_FROM_ALL "${CMAKE_BINARY_DIR}/test_headers.cc")
    target_link_libraries(headrace_test_headers PRIVATE headrace_base GTest::gmock GTest::gtest GTest::gtest_main)
    target_compile_options(headrace_test_headers PRIVATE ${_options})
    target_precompile_headers(headrace_test_headers PRIVATE
      <gmock/gmock.h> <gtest/gtest.h> <algorithm> <functional> <map> <memory> <optional> <string>
      <string_view> <vector>)
  endif()
  target_compile_options(${name} PRIVATE ${_options})
  target_precompile_headers(${name} REUSE_FROM headrace_test_headers)
endfunction()

# headrace_compile_as_tests(a.cc ...): files of a library for tests that hold tests themselves.
function(headrace_compile_as_tests)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${HEADRACE_TEST_OPTIONS}")
endfunction()

# headrace_test(NAME SOURCES a_test.cc ... [USES dataset ...] [LIBRARIES ...] [LABELS ...])
# makes a GoogleTest program and registers it with ctest under NAME, labelled "unit" and by its module.
# The targets headrace_tests and headrace_tests_MODULE build all of them, and those of a module;
# headrace_tests_threads those with the label "threads", in which several threads run at once.
function(headrace_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBRARIES;LABELS" ${ARGN})
  if(NOT HEADRACE_TESTS)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  foreach(_dep IN LISTS ARG_USES)
    target_link_libraries(${name} PRIVATE headrace_${_dep})
  endforeach()
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gmock GTest::gtest GTest::gtest_main)
  target_link_libraries(${name} PRIVATE headrace_options)
  headrace_precompile_test_headers(${name})
  get_filename_component(_module "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 LABELS "unit;${_module};${ARG_LABELS}")
  set(_groups headrace_tests headrace_tests_${_module})
  if("threads" IN_LIST ARG_LABELS)
    list(APPEND _groups headrace_tests_threads)
  endif()
  foreach(_group IN LISTS _groups)
    if(NOT TARGET ${_group})
      add_custom_target(${_group})
    endif()
    add_dependencies(${_group} ${name})
  endforeach()
endfunction()

# headrace_fuzzer(NAME SOURCES x_fuzz.cc USES dataset CORPUS name): a libFuzzer program under clang with
# -DHEADRACE_FUZZ=ON; under any other build a plain program that replays the files it is given,
# so that the corpus (fuzz/corpus/name) is a regression test everywhere. The target headrace_fuzzers
# builds all of them; build folder/fuzzers.txt lists "PROGRAM CORPUS" for scripts/fuzz.sh.
file(WRITE "${CMAKE_BINARY_DIR}/fuzzers.txt" "")
function(headrace_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;CORPUS" ${ARGN})
  if(NOT HEADRACE_TESTS)
    return()
  endif()
  if(HEADRACE_FUZZ)
    add_executable(${name} ${ARG_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${ARG_SOURCES} "${CMAKE_SOURCE_DIR}/fuzz/replay_main.cc")
    add_test(NAME ${name}_replay COMMAND ${name} "${CMAKE_SOURCE_DIR}/fuzz/corpus/${ARG_CORPUS}")
    set_tests_properties(${name}_replay PROPERTIES TIMEOUT 900 LABELS "fuzz")
  endif()
  foreach(_dep IN LISTS ARG_USES)
    target_link_libraries(${name} PRIVATE headrace_${_dep})
  endforeach()
  if(NOT TARGET headrace_fuzzers)
    add_custom_target(headrace_fuzzers)
  endif()
  add_dependencies(headrace_fuzzers ${name})
  file(RELATIVE_PATH _program "${CMAKE_BINARY_DIR}" "${CMAKE_CURRENT_BINARY_DIR}/${name}")
  file(APPEND "${CMAKE_BINARY_DIR}/fuzzers.txt" "${_program} ${ARG_CORPUS}\n")
endfunction()
