# A test (cmake -P): installs the build into a fresh prefix and moves that to another folder. There it builds the
# examples with find_package, and runs them and the program. It fails if the export lacks a header, a library or a
# dependency, or if the program lacks one of its parts. `gloo`: whether Gloo's module was built.

cmake_minimum_required(VERSION 3.24)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(work ${build_dir}/install-test)
set(prefix ${work}/elsewhere/moved)
file(REMOVE_RECURSE ${work})
run(${CMAKE_COMMAND} --install ${build_dir} --prefix ${work}/prefix)
file(MAKE_DIRECTORY ${work}/elsewhere ${work}/somewhere)
file(RENAME ${work}/prefix ${prefix})

run(${CMAKE_COMMAND} -S ${source_dir}/examples -B ${work}/examples -G ${generator}
  -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_COMPILER=${compiler})
run(${CMAKE_COMMAND} --build ${work}/examples)
run(${work}/examples/all_reduce)
run(${work}/examples/c_ranks)
run(${work}/examples/from_environment)
run(${work}/examples/guide)
run(${work}/examples/moe)

set(bench ${prefix}/bin/weft bench all-reduce --device cpu --ranks 2 --bytes 1K --samples 1)
run(${bench} --json ${work}/result.json WORKING_DIRECTORY ${work}/somewhere)
file(READ ${work}/result.json result)
string(JSON points LENGTH ${result} points)
set(contenders "")
math(EXPR last "${points} - 1")
foreach(point RANGE ${last})
  string(JSON contender GET ${result} points ${point} contender)
  list(APPEND contenders ${contender})
endforeach()
if(gloo AND NOT "Gloo ring" IN_LIST contenders)
  message(FATAL_ERROR "The installed program does not find Gloo: ${contenders}")
endif()

# It draws, or matplotlib is missing. The script itself must be found.
execute_process(COMMAND ${bench} --plot ${work}/result.svg WORKING_DIRECTORY ${work}/somewhere
  RESULT_VARIABLE code ERROR_VARIABLE said OUTPUT_QUIET)
if(NOT code EQUAL 0 AND NOT said MATCHES "needs matplotlib")
  message(FATAL_ERROR "The installed program cannot draw: ${said}")
endif()
