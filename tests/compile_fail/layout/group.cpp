#include <tide/layout/group.hpp>

constexpr auto w = tide::param<tide::bf16>("w", {4, 8});

#if TIDE_CASE == 1  // expect: tide::group: the parts must be made by tide::param, tide::repeat or tide::alias
constexpr auto subject = tide::group(w, "v");
#elif TIDE_CASE == 2  // expect: tide::group: the parts must be made by tide::param, tide::repeat or tide::alias
constexpr auto subject = tide::group(tide::group(w));
#elif TIDE_CASE == 3  // expect: tide::repeat: the repeated parts must be made by tide::param
constexpr auto subject = tide::repeat<2>("layers.{}.", w, tide::alias("v", "w"));
#else                 // control: the same with legal arguments
constexpr auto subject = tide::group(w, tide::repeat<2>("layers.{}.", w), tide::alias("v", "w"));
#endif
