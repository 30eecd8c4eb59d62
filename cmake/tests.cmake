# weft-tests, weft-twin-tests, weft-apart-tests, weft-oracle-tests and weft-mutant-tests (CPU), weft-gpu-tests (needs
# GPUs to run) and weft-sim-tests (simulator).

find_package(GTest QUIET)
if(NOT GTest_FOUND)
  add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  add_library(GTest::gtest_main ALIAS gtest_main)
endif()
include(GoogleTest)

# Cases, which the oracle (cmake/oracle.cmake) has the answers to: the inner loops of most tests.
weft_sources(test_support_files tests/support/*.cpp)
add_library(weft-test-support OBJECT ${test_support_files})
target_include_directories(weft-test-support PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(weft-test-support PUBLIC weft weft_internal weft-oracle GTest::gtest_main)
# Windows of CPU ranks move when they are taken again (tests/support/moving_windows.hpp).
target_link_options(weft-test-support PUBLIC -Wl,--wrap=mmap,--wrap=munmap)
weft_quickly_compiled(weft-test-support)

function(weft_test_executable name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE weft-test-support)
endfunction()

# ctest runs each case in its own process. `./dev test` runs those labelled `case` in a few (tools/test.sh). The time
# limit only ends a hang, and is generous for sanitizers on a busy machine. ctest lists the cases when it runs, so a build
# machine need not be able to run the executable. Other cases run DISABLED_ cases in processes of their own.
function(weft_discover name)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_FILTER "-*DISABLED_*"
    PROPERTIES TIMEOUT 300 ${ARGN})
endfunction()

weft_alone(tests/cli/counted_memory.cpp)  # GCC reports its operators new and delete as mismatched if it inlines them
weft_sources_below(test_files tests/*_test.cpp)
list(FILTER test_files EXCLUDE REGEX "^tests/(gpu|sim|twins)/")
if(NOT WEFT_SIMULATE)
  list(FILTER test_files EXCLUDE REGEX "^tests/cli/(simulate|examples)_test")
endif()
if(NOT TARGET weft-cli-parts)
  list(FILTER test_files EXCLUDE REGEX "^tests/(cli|fuzz)/")
else()
  # The fuzzers' targets, for the test that repeats their findings.
  weft_sources(fuzz_files tests/fuzz/*.cpp)
  list(REMOVE_ITEM fuzz_files tests/fuzz/main.cpp)
  list(APPEND test_files ${fuzz_files} tests/cli/counted_memory.cpp)
  list(REMOVE_DUPLICATES test_files)
  set_property(SOURCE tests/fuzz/corpus_test.cpp APPEND PROPERTY
    COMPILE_DEFINITIONS WEFT_CORPUS="${PROJECT_SOURCE_DIR}/tests/fuzz/corpus")
endif()
if(test_files)
  add_library(weft-test-cases OBJECT ${test_files})
  target_link_libraries(weft-test-cases PUBLIC weft-test-support)
  if(test_files MATCHES "tests/cli/")
    target_link_libraries(weft-test-cases PUBLIC weft-cli-parts)
  endif()
  weft_not_optimised(weft-test-cases)
  weft_precompiled(weft-test-cases
    fmt/format.h gtest/gtest.h algorithm chrono filesystem fstream functional memory random string thread vector)
  set_target_properties(weft-test-cases PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
  add_executable(weft-tests)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread")
    target_sources(weft-tests PRIVATE tests/kept_blocks.cpp)
    set_source_files_properties(tests/kept_blocks.cpp PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
    foreach(symbol IN ITEMS _Znwm _ZnwmSt11align_val_t _ZdlPv _ZdlPvSt11align_val_t)
      target_link_options(weft-tests PRIVATE LINKER:--wrap=${symbol})
    endforeach()
  endif()
  # O1 more than doubles the compile time of cases under sanitizers. Of a template's instance that several objects have,
  # the linker takes the first. So what has the inner loops stands before the cases: the library, the oracle and the
  # tests' support.
  if(sanitized OR WEFT_QUICK_KERNELS)
    target_sources(weft-tests PRIVATE $<TARGET_OBJECTS:weft> $<TARGET_OBJECTS:weft-oracle>)
  endif()
  target_link_libraries(weft-tests PRIVATE weft-test-support weft-test-cases $<TARGET_NAME_IF_EXISTS:weft-cli-parts>)
  weft_discover(weft-tests LABELS case)
endif()

# Stand-ins for NCCL of several versions, which tests of the search load: the build's, others, and one that is too old.
# They lie beside the executables, for machines that cannot build.
if(TARGET weft-tests AND WEFT_WITH_CUDA)
  set(stub_versions 2.27.3 2.28.12 2.29.7 2.30.7 ${WEFT_NCCL_VERSION})
  list(REMOVE_DUPLICATES stub_versions)
  foreach(version IN LISTS stub_versions)
    string(REGEX MATCH "([0-9]+)\\.([0-9]+)\\.([0-9]+)" unused ${version})
    math(EXPR code "${CMAKE_MATCH_1} * 10000 + ${CMAKE_MATCH_2} * 100 + ${CMAKE_MATCH_3}")
    add_library(weft-nccl-stub-${code} SHARED tests/stubs/nccl.cpp)
    target_link_libraries(weft-nccl-stub-${code} PRIVATE weft_internal)
    target_compile_definitions(weft-nccl-stub-${code} PRIVATE WEFT_STUB_VERSION=${code})
    target_link_options(weft-nccl-stub-${code} PRIVATE LINKER:-soname,libnccl.so.2)
    set_target_properties(weft-nccl-stub-${code} PROPERTIES OUTPUT_NAME nccl SUFFIX .so.2 NO_SONAME ON
      LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:weft-tests>/stubs/${code})
    list(APPEND nccl_stubs weft-nccl-stub-${code})
  endforeach()
  add_dependencies(weft-tests ${nccl_stubs})
endif()

find_package(Python3 COMPONENTS Interpreter)

# weft_mutate(TARGET TABLES SWITCHED_BY SOURCE DIR INPUTS...): makes copies of files below SOURCE in which `tests` or the
# `environment` can switch seeded bugs on. MUTATED_FILES lists them, seen from there.
function(weft_mutate target tables switched_by source dir)
  set(inputs ${PROJECT_SOURCE_DIR}/tools/mutate.py ${tables} ${ARGN})
  # The copies are named as outputs, so that sources that include them are compiled anew in the same build.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tables})
  set(files)
  foreach(table IN LISTS tables)
    file(STRINGS ${table} lines REGEX "\"file\": ")
    list(APPEND files ${lines})
  endforeach()
  list(TRANSFORM files REPLACE ".*\"file\": \"([^\"]+)\".*" "\\1")
  list(REMOVE_DUPLICATES files)
  set(MUTATED_FILES ${files} PARENT_SCOPE)
  list(TRANSFORM files PREPEND ${dir}/)
  add_custom_command(OUTPUT ${dir}/stamp BYPRODUCTS ${dir}/mutant.hpp ${dir}/mutant_table.hpp ${files}
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/mutate.py
      --table ${tables} --switched-by ${switched_by} --source ${source} --output ${dir}
    COMMAND ${CMAKE_COMMAND} -E touch ${dir}/stamp
    DEPENDS ${inputs} COMMENT "Seeding bugs" VERBATIM)
  add_custom_target(${target} DEPENDS ${dir}/stamp)
endfunction()

# The oracle's cases computed by hand again, over an oracle with seeded bugs. They are compiled like the oracle, without
# the project's include folders.
if(Python3_FOUND AND NOT sanitized)
  set(oracle_mutants ${PROJECT_SOURCE_DIR}/tests/oracle/mutants.json)
  weft_sources(oracle_tests tests/oracle/*_test.cpp)
  set(mutated_oracle ${CMAKE_BINARY_DIR}/mutated-oracle)
  list(TRANSFORM oracle_files PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE oracle_inputs)
  weft_mutate(weft_mutated_oracle ${oracle_mutants} environment ${PROJECT_SOURCE_DIR} ${mutated_oracle}
    ${oracle_inputs})
  set(unmutated ${oracle_files})
  list(REMOVE_ITEM unmutated ${MUTATED_FILES})
  list(TRANSFORM MUTATED_FILES PREPEND ${mutated_oracle}/)
  add_executable(weft-oracle-tests ${oracle_tests} ${unmutated} ${MUTATED_FILES})
  add_dependencies(weft-oracle-tests weft_mutated_oracle)
  target_compile_features(weft-oracle-tests PRIVATE cxx_std_20)
  target_include_directories(weft-oracle-tests PRIVATE ${mutated_oracle} ${PROJECT_SOURCE_DIR})
  target_compile_options(weft-oracle-tests PRIVATE ${host_flags} -Wpedantic)
  target_link_libraries(weft-oracle-tests PRIVATE GTest::gtest_main)
  weft_not_optimised(weft-oracle-tests)
  add_test(NAME oracle_mutants COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/mutants/run.py
    --table ${oracle_mutants} $<TARGET_FILE:weft-oracle-tests>)
  set_tests_properties(oracle_mutants PROPERTIES TIMEOUT 300)
endif()

# All CPU tests again, over the host's code with seeded bugs: its objects stand before the library's, of which only the
# executors are taken.
if(TARGET weft-tests AND Python3_FOUND AND NOT sanitized)
  set(host_mutants ${PROJECT_SOURCE_DIR}/tests/mutants/host.json)
  set(host_files ${weft_host_files})
  list(REMOVE_ITEM host_files ${weft_kernel_files})
  list(TRANSFORM host_files PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE host_inputs)
  weft_mutate(weft_mutated_host ${host_mutants} environment ${PROJECT_SOURCE_DIR}/src
    ${CMAKE_BINARY_DIR}/mutated-host ${host_inputs})
  foreach(file IN LISTS MUTATED_FILES)
    list(REMOVE_ITEM host_files src/${file})
    list(APPEND host_files ${CMAKE_BINARY_DIR}/mutated-host/${file})
  endforeach()
  add_library(weft-mutated OBJECT ${host_files})
  add_dependencies(weft-mutated weft_mutated_host weft_build_info)
  target_include_directories(weft-mutated BEFORE PRIVATE ${CMAKE_BINARY_DIR}/mutated-host
    ${CMAKE_BINARY_DIR}/generated/tuning ${build_info_dir})
  target_link_libraries(weft-mutated PRIVATE weft_internal)
  weft_quickly_compiled(weft-mutated)
  add_executable(weft-mutant-tests)
  if(nccl_stubs)
    add_dependencies(weft-mutant-tests ${nccl_stubs})
  endif()
  target_link_libraries(weft-mutant-tests PRIVATE weft-mutated weft-test-support weft-test-cases
    $<TARGET_NAME_IF_EXISTS:weft-cli-parts>)
  add_test(NAME host_mutants COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/mutants/run.py
    --table ${host_mutants} $<TARGET_FILE:weft-mutant-tests>)
  # COST, here and below: seconds. ctest begins with the longest, so that none is left alone at the end.
  set_tests_properties(host_mutants PROPERTIES TIMEOUT 600 PROCESSORS 2 COST 50)
endif()

# Twins replace a part of the library by one that is broken or lacks something. They are separate executables: the
# linker finds the twin's definition before it looks into the archive.
get_target_property(weft_type weft TYPE)
if(weft_type STREQUAL "STATIC_LIBRARY" AND NOT sanitized)
  weft_test_executable(weft-twin-tests tests/twins/breakable_fabric.cpp tests/twins/broken_fabric_test.cpp
    tests/twins/broken_results_test.cpp tests/twins/pairs_test.cpp)
  target_link_libraries(weft-twin-tests PRIVATE weft-cli-parts)
  weft_discover(weft-twin-tests)
  weft_test_executable(weft-apart-tests tests/twins/apart_fabric.cpp tests/twins/apart_fabric_test.cpp
    tests/cli/counted_memory.cpp)
  weft_discover(weft-apart-tests)
  weft_not_optimised(weft-twin-tests weft-apart-tests)

  # Tests of every operation once more, through the C interface: the linker wraps the functions that these files define.
  if(TARGET weft-test-cases)
    set(through_c tests/twins/through_c.cpp tests/twins/through_c_layers.cpp tests/twins/through_c_norms.cpp
      tests/twins/through_c_objects.cpp)
    set(wrapped)
    foreach(file IN LISTS through_c)
      file(STRINGS ${file} lines REGEX " __wrap_[A-Za-z0-9_]+\\(")
      list(APPEND wrapped ${lines})
    endforeach()
    list(TRANSFORM wrapped REPLACE ".* __wrap_([A-Za-z0-9_]+)\\(.*" "LINKER:--wrap=\\1")
    add_executable(weft-c-tests ${through_c})
    weft_not_optimised(weft-c-tests)
    target_link_libraries(weft-c-tests PRIVATE weft-test-support weft-test-cases $<TARGET_NAME_IF_EXISTS:weft-cli-parts>)
    target_link_options(weft-c-tests PRIVATE ${wrapped})
    # Worlds of two: what is tried is the way there.
    set(suites Clusters.* ColumnArguments.* ColumnShares.* GatherArguments.* GatheredCountsCalls.* Groups.*
      MessageArguments.* MoeArguments.* MoeHandles.* MoeLayersOfTwo.* MoePayloads.* NormedCrossingArguments.*
      Recording.* RmsNormArguments.* SharedExpertsOfTwo.* SymmetricMemory.* TakenRows.* TopKArguments.*
      */AllReduce.EveryType*/1 */Columns.*/1 */Crossings.*/1 */Gather.*/1 */GatheredCountsOf.*/1 */Messages.*/1
      */MoeApart.*/1 */MoeLayers.*/1 */MoeRounds.EveryKindOfRouting/1 */NormedCrossings.*/1 */Ragged.*/1
      */RmsNorm.*/1 */SharedExperts.*/1 */TopK.*/1)
    list(JOIN suites ":" suites)
    add_test(NAME operations_through_c COMMAND weft-c-tests --gtest_brief=1 "--gtest_filter=${suites}:-*DISABLED_*")
    set_tests_properties(operations_through_c PROPERTIES TIMEOUT 300 PROCESSORS 2 COST 20)
  endif()

  # A program in C that the shared library serves, and the names that it exports.
  enable_language(C)
  add_executable(weft-c-ranks examples/c_ranks.c)
  set_target_properties(weft-c-ranks PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF)
  target_include_directories(weft-c-ranks PRIVATE include)
  target_compile_options(weft-c-ranks PRIVATE -Wall -Wextra -pedantic -Werror)
  target_link_libraries(weft-c-ranks PRIVATE weft-shared Threads::Threads)
  add_test(NAME ranks_in_c COMMAND weft-c-ranks)
  set_tests_properties(ranks_in_c PROPERTIES TIMEOUT 60)
  if(Python3_FOUND)
    add_test(NAME exported_names COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/c/test_exports.py
      --library $<TARGET_FILE:weft-shared> --archive $<TARGET_FILE:weft>
      --headers ${PROJECT_SOURCE_DIR}/include/weft/c)
    set_tests_properties(exported_names PROPERTIES TIMEOUT 60)
    add_test(NAME interfaces_alike COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/c/test_parity.py)
    set_tests_properties(interfaces_alike PROPERTIES TIMEOUT 60)
  endif()
endif()

# The simulator over copies of the production templates in which seeded bugs can be switched on (tools/mutate.py). Its tests
# must not be linked with the library, which has the same templates without the bugs. A quick build compiles it once, for
# the program, too, which switches no bug on.
weft_sources_below(sim_test_files tests/sim/*_test.cpp)
if(sim_test_files AND Python3_FOUND AND NOT sanitized)
  set(mutated_sim weft-sim)
  if(NOT WEFT_QUICK_KERNELS OR NOT TARGET weft-sim)
    set(mutated_sim weft-mutated-sim)
    weft_simulator(${mutated_sim})
  endif()
  weft_sources_below(mutable_headers
    src/base/*.hpp src/numeric/*.hpp src/wire/*.hpp src/protocol/*.hpp src/kernel/*.hpp src/ops/*.hpp)
  set(mutated_dir ${CMAKE_BINARY_DIR}/mutated)
  list(TRANSFORM mutable_headers PREPEND ${PROJECT_SOURCE_DIR}/)
  set(sim_mutants mutants mutants_deep mutants_time)
  list(TRANSFORM sim_mutants REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/tests/sim/\\1.json")
  weft_mutate(weft_mutated "${sim_mutants}" tests ${PROJECT_SOURCE_DIR}/src ${mutated_dir} ${mutable_headers})
  weft_sources(relacy_files tests/sim/*relacy_test.cpp)
  weft_alone(${relacy_files})
  # Relacy switches stacks by longjmp. Ubuntu's compilers are hardened by default and take this for an attack.
  set_property(SOURCE ${relacy_files} APPEND PROPERTY COMPILE_OPTIONS -U_FORTIFY_SOURCE)
  add_executable(weft-sim-tests ${sim_test_files} src/base/fmt.cpp)
  foreach(target IN ITEMS ${mutated_sim} weft-sim-tests)
    add_dependencies(${target} weft_mutated)
    target_include_directories(${target} BEFORE PRIVATE ${mutated_dir})
  endforeach()
  weft_simulated(weft-sim-tests)
  target_include_directories(weft-sim-tests PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(weft-sim-tests PRIVATE ${mutated_sim} weft-oracle GTest::gtest_main)
  weft_discover(weft-sim-tests LABELS case)
endif()

# Compiled if nvcc is present. Not registered with ctest, which would fail without a GPU: `./dev test` and `./dev test
# --gpu` run it.
if(WEFT_WITH_CUDA)
  weft_sources_below(gpu_test_files tests/gpu/*_test.cpp tests/gpu/*_test.cu)
  weft_sources(gpu_support_files tests/gpu/support/*.cpp tests/gpu/support/*.cu)
  if(TARGET weft-cli-parts)
    list(APPEND gpu_support_files tests/cli/counted_memory.cpp)
  else()
    list(REMOVE_ITEM gpu_test_files tests/gpu/host_cost_test.cpp)
  endif()
  if(gpu_test_files)
    weft_test_executable(weft-gpu-tests ${gpu_test_files} ${gpu_support_files})
    target_link_libraries(weft-gpu-tests PRIVATE $<TARGET_NAME_IF_EXISTS:weft-cli-parts>)
    weft_not_optimised(weft-gpu-tests)
    weft_precompiled(weft-gpu-tests
      fmt/format.h gtest/gtest.h algorithm chrono functional memory string thread vector)
    set_target_properties(weft-gpu-tests PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
  endif()
endif()

# Checks of the GPU's code. They need nvcc but no GPU.
if(CUDAToolkit_NVCC_EXECUTABLE AND Python3_FOUND)
  function(weft_ptx_test name script)
    add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/ptx/${script}
      --nvcc ${CUDAToolkit_NVCC_EXECUTABLE} ${ARGN})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 COST 5)
  endfunction()
  weft_ptx_test(ptx_wrappers check_wrappers.py)
  weft_ptx_test(ptx_twin check_twin.py)
  weft_ptx_test(ptx_arguments check_arguments.py)
  weft_ptx_test(ptx_checks test_checks.py)
endif()

if(Python3_FOUND AND NOT sanitized)
  add_test(NAME lint_rules COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/lint/test_lint.py)
  add_test(NAME lint_prose COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/lint/test_prose.py)
  add_test(NAME lint_shards COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/lint/test_shards.py)
  set(listed)
  if(TARGET weft-sim-tests)
    set(listed $<TARGET_FILE:weft-sim-tests>)
  endif()
  if(TARGET weft-tests)
    add_test(NAME lint_kernels COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tools/kernel_table.py --check
      $<TARGET_FILE:weft-tests>)
  endif()
  add_test(NAME lint_changed COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/lint/test_changed.py ${listed})
  add_test(NAME reliability_tables
    COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/lint/test_reliability_tables.py)
  add_test(NAME plot_script COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/bench/test_plot.py)
  add_test(NAME results COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/bench/test_results.py)
  add_test(NAME result_aims COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/bench/test_result_aims.py)
  set(program)
  if(TARGET weft-cli)
    set(program $<TARGET_FILE:weft-cli>)
  endif()
  add_test(NAME rivals_script COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/bench/test_rivals.py ${program})
  add_test(NAME result_layers COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/bench/test_result_layers.py)
endif()

# The Python package, as it is installed.
if(WEFT_WITH_PYTHON)
  add_test(NAME python_install COMMAND ${CMAKE_COMMAND} --install ${CMAKE_BINARY_DIR} --component python --strip
    --prefix ${CMAKE_BINARY_DIR}/site)
  set_tests_properties(python_install PROPERTIES FIXTURES_SETUP python_package)
  nanobind_add_module(weft-python-oracle STABLE_ABI NB_SUPPRESS_WARNINGS BACKEND_MODULE nanobind_backend
    tests/python/oracle.cpp)
  set_target_properties(weft-python-oracle PROPERTIES OUTPUT_NAME weft_oracle UNITY_BUILD OFF
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/site)
  target_link_libraries(weft-python-oracle PRIVATE weft-oracle)
  add_test(NAME python_wheel COMMAND ${Python_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/python/check_wheel.py
    --installed ${CMAKE_BINARY_DIR}/site)
  set_tests_properties(python_wheel PROPERTIES FIXTURES_REQUIRED python_package TIMEOUT 600 COST 60)
  weft_sources(python_tests tests/python/test_*.py)
  if(NOT nccl_stubs)
    list(REMOVE_ITEM python_tests tests/python/test_nccl.py)
  endif()
  weft_sources(python_examples examples/*.py)
  list(FILTER python_examples EXCLUDE REGEX "/moe_")  # they need torch: tools/test.sh has them
  add_test(NAME python_types COMMAND ${Python_EXECUTABLE} -B -m mypy --strict --cache-dir ${CMAKE_BINARY_DIR}/mypy
    ${python_examples} ${python_tests} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(python_types PROPERTIES FIXTURES_REQUIRED python_package TIMEOUT 300 COST 20
    ENVIRONMENT MYPYPATH=${CMAKE_BINARY_DIR}/site:${PROJECT_SOURCE_DIR}/tests/python)
  foreach(file IN LISTS python_tests)
    cmake_path(GET file STEM name)
    string(REPLACE "test_" "python_" name ${name})
    add_test(NAME ${name} COMMAND ${Python_EXECUTABLE} -B -m pytest -q -p no:cacheprovider ${PROJECT_SOURCE_DIR}/${file})
    set_tests_properties(${name} PROPERTIES FIXTURES_REQUIRED python_package TIMEOUT 300 COST 20
      ENVIRONMENT PYTHONPATH=${CMAKE_BINARY_DIR}/site)
  endforeach()
endif()

if(NOT sanitized)
  add_test(NAME install_and_find_package COMMAND ${CMAKE_COMMAND}
    -D build_dir=${CMAKE_BINARY_DIR} -D source_dir=${PROJECT_SOURCE_DIR} -D generator=${CMAKE_GENERATOR}
    -D compiler=${CMAKE_CXX_COMPILER} -D gloo=$<TARGET_EXISTS:weft-gloo-peer> -P ${PROJECT_SOURCE_DIR}/cmake/install_test.cmake)
  set_tests_properties(install_and_find_package PROPERTIES TIMEOUT 300 COST 5)
endif()
