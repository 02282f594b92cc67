#include <tide/layout/parameter.hpp>

#if TIDE_CASE == 1  // expect: tide::param: Gathered and Gradient must be bf16, f16, float, double, f8_e4m3 or f8_e5m2
constexpr auto subject = tide::param<int>("w", {4, 8});
#elif TIDE_CASE == 2  // expect: tide::param: Gathered and Gradient must be bf16, f16, float, double, f8_e4m3 or f8_e5m2
constexpr auto subject = tide::param<tide::bf16, const float>("w", {4, 8});
#else                 // control: the same with legal arguments
constexpr auto subject = tide::param<tide::bf16, float>("w", {4, 8});
#endif
