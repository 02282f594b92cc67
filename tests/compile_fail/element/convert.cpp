// SPDX-License-Identifier: Apache-2.0

#include <tide/element/convert.hpp>

#if TIDE_CASE == 1  // expect: tide::convert: To must be bf16, f16, float, double, f8_e4m3 or f8_e5m2
auto subject() { return tide::convert<int>(1.0F); }
#elif TIDE_CASE == 2  // expect: tide::convert: From must be bf16, f16, float, double, f8_e4m3 or f8_e5m2
auto subject() { return tide::convert<tide::bf16>(1); }
#else                 // control: the same with legal arguments
auto subject() { return tide::convert<tide::bf16>(1.0F); }
#endif
