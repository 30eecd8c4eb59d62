# The grouped GEMMs of `weft bench moe-layer`, if WEFT_CUTLASS names a folder with CUTLASS's sources (4.2: `include` and
# `tools`), such as cutlass_library/source of PyPI's nvidia-cutlass. Nothing else of Weft needs them.
set(WEFT_CUTLASS "" CACHE PATH "CUTLASS's sources, for the GEMMs of weft bench moe-layer")

if(TARGET weft-cli-parts)
  if(WEFT_WITH_CUDA AND WEFT_CUTLASS)
    if(NOT EXISTS ${WEFT_CUTLASS}/include/cutlass/cutlass.h)
      message(FATAL_ERROR "WEFT_CUTLASS: ${WEFT_CUTLASS} has no include/cutlass/cutlass.h")
    endif()
    weft_sources(cutlass_files apps/weft/gemm/cutlass_*.cu)
    add_library(weft-cutlass OBJECT ${cutlass_files})
    # ./dev test compiles a GEMM of each type, and what enqueues them, up to PTX.
    list(FILTER cutlass_files EXCLUDE REGEX _128)
    add_library(weft-cutlass-ptx OBJECT EXCLUDE_FROM_ALL ${cutlass_files})
    set_target_properties(weft-cutlass-ptx PROPERTIES CUDA_PTX_COMPILATION ON)
    # wgmma is no part of plain sm_90. CUTLASS's own headers have warnings.
    foreach(target weft-cutlass weft-cutlass-ptx)
      set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES 90a-real)
      target_compile_options(${target} PRIVATE -std=c++20 --expt-relaxed-constexpr -DNDEBUG)
      target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/apps/weft ${PROJECT_SOURCE_DIR}/include)
      target_include_directories(${target} SYSTEM PRIVATE ${WEFT_CUTLASS}/include ${WEFT_CUTLASS}/tools/util/include)
    endforeach()
    set_target_properties(weft-cutlass PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(weft-cli-parts PUBLIC weft-cutlass)
    target_sources(weft-cli-parts PUBLIC $<TARGET_OBJECTS:weft-cutlass>)
  else()
    target_sources(weft-cli-parts PRIVATE apps/weft/gemm/no_cutlass.cpp)
  endif()
endif()
