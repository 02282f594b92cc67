// SPDX-License-Identifier: Apache-2.0

#include <tide/element/element.hpp>

#if TIDE_CASE == 1  // expect: tide::element_of_v: T must be bf16, f16, float, double, f8_e4m3 or f8_e5m2
constexpr tide::Element subject = tide::element_of_v<const float>;
#elif TIDE_CASE == 2  // expect: tide::type_of_t: E must be an enumerator of tide::Element
using Subject = tide::type_of_t<static_cast<tide::Element>(6)>;
#else                 // control: the same with legal arguments
constexpr tide::Element subject = tide::element_of_v<float>;
using Subject = tide::type_of_t<static_cast<tide::Element>(5)>;
#endif
