#include <tide/layout/ragged_shard.hpp>

#if TIDE_CASE == 1  // expect: tide::RaggedShard: row counts must not be negative
constexpr auto subject = tide::ragged<3, -1, 2>();
#else  // control: the same with legal arguments
constexpr auto subject = tide::ragged<3, 0, 2>();
#endif
