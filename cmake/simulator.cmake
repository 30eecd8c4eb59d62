# Builds the simulator: for `weft simulate` (cmake/cli.cmake), and for its tests, with seeded bugs (cmake/tests.cmake).
# Each operation brings its own part.

weft_sources(sim_files src/sim/*.cpp src/comm/sim_*.cpp src/ops/*/sim_*.cpp)
weft_sources(sim_kernel_files src/ops/*/sim_*kernels*.cpp)
weft_alone(${sim_kernel_files})
# Every step passes these files, or each that copies in bulk or meets other lanes. GCC vectorises the loop that joins
# views only at O3. Without it the simulator takes a tenth longer, and another tenth with the others at O1.
set_property(SOURCE src/sim/copies.cpp src/sim/lanes.cpp src/sim/machine.cpp src/sim/memory.cpp src/sim/schedule.cpp
  src/sim/stage.cpp src/sim/steps.cpp APPEND PROPERTY
  COMPILE_OPTIONS $<$<CONFIG:RelWithDebInfo>:-O3>)

# For the simulator, and for tests that run in it.
function(weft_simulated target)
  weft_quickly_compiled(${target})
  target_compile_definitions(${target} PRIVATE WEFT_KEEPS_LOOPS)
  # GCC 12 does not see that a sum's first term is always taken.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endfunction()

function(weft_simulator target)
  set(Boost_USE_STATIC_LIBS ON)
  find_package(Boost REQUIRED COMPONENTS context)
  add_library(${target} STATIC ${sim_files})
  target_link_libraries(${target} PUBLIC weft_internal Boost::context)
  weft_simulated(${target})
endfunction()
