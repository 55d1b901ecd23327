#pragma once

#include <cstdlib>

/// A promise that must hold for every input: unlike assert, in every kind of build.
#define REQUIRE(condition)                                                                                             \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      __builtin_trap();                                                                                                \
    }                                                                                                                  \
  } while (false)
