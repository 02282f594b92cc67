// SPDX-License-Identifier: Apache-2.0
// flags: -std=c++17

#if TIDE_CASE == 1  // expect: tide: C++20 is required; compile with -std=c++20
#include <tide/core/config.hpp>
#elif TIDE_CASE == 2  // expect: tide: C++20 is required; compile with -std=c++20
#include <tide/tide.hpp>
#else  // control: the same with C++20
#include <tide/core/config.hpp>
TIDE_HIDDEN TIDE_HOST_DEVICE constexpr int subject() { return TIDE_HAS_EXCEPTIONS; }
#endif
