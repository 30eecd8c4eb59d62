# weft::weft, the library.

# Rooms (docs/architecture.md) with source files. Their files sim_* belong to the simulator.
set(library_rooms base kernel tuning rendezvous fabric comm symmetric ops c)
list(TRANSFORM library_rooms PREPEND src/)
list(TRANSFORM library_rooms APPEND /*.cpp OUTPUT_VARIABLE library_patterns)
weft_sources_below(weft_host_files ${library_patterns})
list(FILTER weft_host_files EXCLUDE REGEX "/sim_[^/]*$")
set(weft_files ${weft_host_files})
if(WEFT_WITH_CUDA)
  list(TRANSFORM library_rooms APPEND /*.cu OUTPUT_VARIABLE library_patterns)
  weft_sources_below(weft_cuda_files ${library_patterns})
  list(APPEND weft_files ${weft_cuda_files})
endif()

# The code that runs kernels, and the kernels.
set(weft_kernel_files ${weft_files})
list(FILTER weft_kernel_files INCLUDE REGEX "^src/kernel/|^src/(comm|ops)/.*/?cpu_[^/]*[.]cpp$|[.]cu$")
weft_alone(${weft_kernel_files})
if(WEFT_QUICK_KERNELS)
  set(weft_cpu_kernel_files ${weft_kernel_files})
  list(FILTER weft_cpu_kernel_files INCLUDE REGEX "/cpu_[^/]*[.]cpp$")
  set_property(SOURCE ${weft_cpu_kernel_files} APPEND PROPERTY COMPILE_OPTIONS -DWEFT_KEEPS_LOOPS)  # base/function.hpp
else()
  # GCC's O3 unrolls MoE's loops until the compile time is threefold (27 s, 10 s), and they and the norm's become no
  # faster. Measured on two CPU ranks: least times of dispatches by slots within 4 % (the median of 8 tokens 8 % slower),
  # by the ring 17 % faster, norms 11 % faster. All-reduces and moves stay at O3: at O2 the former take up to 14 % longer,
  # symmetric gathers 60 to 70 %.
  set_property(SOURCE src/ops/moe/cpu_moe.cpp src/ops/norm/cpu_norm.cpp APPEND PROPERTY COMPILE_OPTIONS
    "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:RelWithDebInfo,Release>>:-O2;-fvect-cost-model=dynamic>")
endif()
weft_alone(src/base/fmt.cpp)
weft_alone(src/fabric/cpu_fabric.cpp)  # a test twin replaces its object of the archive

add_library(weft ${weft_files})
add_library(weft::weft ALIAS weft)
if(WEFT_QUICK_KERNELS)
  weft_quickly_compiled(weft)
endif()
target_compile_features(weft PUBLIC cxx_std_20)
target_include_directories(weft PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# Tuning tables
weft_compiled_in(tuning/tuning/tuning_files.hpp kTuningFiles tuning/*.json)
target_include_directories(weft PRIVATE ${CMAKE_BINARY_DIR}/generated/tuning)

target_link_libraries(weft PRIVATE $<BUILD_INTERFACE:weft_internal> Sodium::Sodium Threads::Threads)
if(WEFT_WITH_CUDA)
  target_link_libraries(weft PRIVATE CUDA::cudart_static)
endif()
set_target_properties(weft PROPERTIES POSITION_INDEPENDENT_CODE ON VERSION ${PROJECT_VERSION} SOVERSION 0)

# Limits the names that a shared library exports. Objects are the same in the archive and in it; the linker hides
# everything else. So fmt and spdlog are the library's own, whatever copies its host program has.
function(weft_export_own_names target)
  set(exports ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  target_link_options(${target} PRIVATE LINKER:--version-script=${exports})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${exports})
endfunction()
if(BUILD_SHARED_LIBS)
  weft_export_own_names(weft)
endif()

# libweft.so beside the archive, for programs in C and Python, if something needs it.
add_library(weft-shared SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:weft>)
target_link_libraries(weft-shared PRIVATE weft_internal)
target_include_directories(weft-shared INTERFACE ${PROJECT_SOURCE_DIR}/include)
set_target_properties(weft-shared PROPERTIES OUTPUT_NAME weft LINKER_LANGUAGE CXX
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/shared)
weft_export_own_names(weft-shared)

# Build information. The header changes only if its text changes, and one source file includes it, so a commit costs one
# small compilation.
set(build_info_dir ${CMAKE_BINARY_DIR}/generated)
set(build_info_compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
set(build_info_type $<CONFIG>)
if(WEFT_QUICK_KERNELS)
  string(APPEND build_info_type " with quickly compiled kernels")
endif()
add_custom_target(weft_build_info
  COMMAND ${CMAKE_COMMAND}
    -D "source_dir=${PROJECT_SOURCE_DIR}" -D "output=${build_info_dir}/weft_build_info.hpp"
    -D "version=${PROJECT_VERSION}" -D "compiler=${build_info_compiler}" -D "build_type=${build_info_type}"
    -D "cuda=${WEFT_CUDA_VERSION}" -D "nccl=${WEFT_NCCL_VERSION}"
    -P ${PROJECT_SOURCE_DIR}/cmake/build_info.cmake
  BYPRODUCTS ${build_info_dir}/weft_build_info.hpp
  COMMENT "" VERBATIM)
add_dependencies(weft weft_build_info)
set_property(SOURCE src/base/build_info.cpp APPEND PROPERTY INCLUDE_DIRECTORIES ${build_info_dir})
