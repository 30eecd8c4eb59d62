# Finds libsodium: target Sodium::Sodium, SODIUM_INCLUDE_DIR, SODIUM_LIBRARY. The archive is preferred, so that what is
# linked with it runs where libsodium is not installed.

find_path(SODIUM_INCLUDE_DIR sodium.h)
find_library(SODIUM_LIBRARY NAMES libsodium.a sodium)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Sodium REQUIRED_VARS SODIUM_LIBRARY SODIUM_INCLUDE_DIR)
mark_as_advanced(SODIUM_INCLUDE_DIR SODIUM_LIBRARY)

if(Sodium_FOUND AND NOT TARGET Sodium::Sodium)
  add_library(Sodium::Sodium UNKNOWN IMPORTED)
  # Its names stay inside of a shared object that is made with it: they meet no other libsodium there, and Debian's
  # archive, which is made for executables, fits into shared objects.
  set_target_properties(Sodium::Sodium PROPERTIES
    IMPORTED_LOCATION ${SODIUM_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${SODIUM_INCLUDE_DIR}
    INTERFACE_LINK_OPTIONS LINKER:--exclude-libs,libsodium.a)
endif()
