# A test (cmake -P): installs the build into a fresh prefix, builds the examples against it with find_package, runs
# them. It fails when the export misses a header, a library or a dependency.

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(work ${build_dir}/install-test)
file(REMOVE_RECURSE ${work})
run(${CMAKE_COMMAND} --install ${build_dir} --prefix ${work}/prefix)
run(${CMAKE_COMMAND} -S ${source_dir}/examples -B ${work}/examples -G ${generator}
  -D CMAKE_PREFIX_PATH=${work}/prefix -D CMAKE_CXX_COMPILER=${compiler})
run(${CMAKE_COMMAND} --build ${work}/examples)
run(${work}/examples/all_reduce)
run(${work}/examples/from_environment)
