# Everything from Debian's packages (script/packages.txt). Boost is 1.81 by name, since 1.74 is Debian's default.
find_package(Threads REQUIRED)
find_package(Boost 1.81 EXACT REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(simdjson REQUIRED)
find_package(tl-expected REQUIRED)
find_package(GTest REQUIRED)
find_package(spdlog REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(CLI11 REQUIRED)

# Debian ships no CMake package for CAF 0.17.
find_library(CAF_CORE caf_core REQUIRED)
add_library(caf::core UNKNOWN IMPORTED)
set_target_properties(caf::core PROPERTIES IMPORTED_LOCATION ${CAF_CORE})

# Header-only Asio and Beast, with the settings that all of holt shares.
add_library(holt_asio INTERFACE)
target_compile_definitions(holt_asio INTERFACE BOOST_ASIO_NO_DEPRECATED)
target_link_libraries(holt_asio INTERFACE Boost::headers Threads::Threads)

# Static archives: holt-agent is one static file, and shares protocols/ with the server.
find_library(RE2_STATIC libre2.a REQUIRED)
find_library(CRYPTO_STATIC libcrypto.a REQUIRED)
find_library(SECCOMP_STATIC libseccomp.a REQUIRED)
find_library(BOOST_JSON_STATIC NAMES libboost_json.a REQUIRED)
add_library(holt_boost_json INTERFACE)
target_link_libraries(holt_boost_json INTERFACE Boost::headers ${BOOST_JSON_STATIC})
