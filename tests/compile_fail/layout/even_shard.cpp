#include <tide/layout/even_shard.hpp>

using tide::index_t;

struct MayThrow {
  static constexpr index_t begin(index_t, index_t, index_t) { return 0; }
};
struct NoBegin {
  static constexpr index_t first(index_t, index_t, index_t) noexcept { return 0; }
};
struct Legal {
  static constexpr index_t begin(index_t, index_t, index_t) noexcept { return 0; }
};

#if TIDE_CASE == 1  // expect: tide::shard_by: Rule must be a ShardRule
constexpr auto subject = tide::shard_by<MayThrow>();
#elif TIDE_CASE == 2  // expect: tide::shard_by: Rule must be a ShardRule
constexpr auto subject = tide::shard_by<NoBegin>(1);
#elif TIDE_CASE == 3  // expect: tide::shard_by: Rule must be a ShardRule
constexpr auto subject = tide::shard_by<int>();
#else                 // control: the same with a rule that has it
constexpr auto subject = tide::shard_by<Legal>();
#endif
