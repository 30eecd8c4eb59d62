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
    # wgmma is no part of plain sm_90. CUTLASS's own headers have warnings.
    set_target_properties(weft-cutlass PROPERTIES CUDA_ARCHITECTURES 90a-real UNITY_BUILD OFF)
    target_compile_options(weft-cutlass PRIVATE -std=c++20 --expt-relaxed-constexpr -DNDEBUG)
    target_include_directories(weft-cutlass PRIVATE ${PROJECT_SOURCE_DIR}/apps/weft ${PROJECT_SOURCE_DIR}/include)
    target_include_directories(weft-cutlass SYSTEM PRIVATE ${WEFT_CUTLASS}/include ${WEFT_CUTLASS}/tools/util/include)
    target_link_libraries(weft-cli-parts PUBLIC weft-cutlass)
    target_sources(weft-cli-parts PUBLIC $<TARGET_OBJECTS:weft-cutlass>)
  else()
    target_sources(weft-cli-parts PRIVATE apps/weft/gemm/no_cutlass.cpp)
  endif()
endif()
