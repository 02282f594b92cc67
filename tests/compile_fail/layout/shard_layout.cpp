#include <tide/layout/ragged_shard.hpp>
#include <tide/layout/shard_layout.hpp>

using tide::index_t;
using tide::Mesh;
using tide::param;
using tide::ShardLayout;

constexpr auto w = param<tide::bf16>("w", {4, 6});

struct NoRule {};
struct OddStarts {
  static constexpr tide::PackingRule rule{24, tide::PackingRule::Padding::none};
};
struct EvenStarts {
  static constexpr tide::PackingRule rule{32, tide::PackingRule::Padding::none};
};
struct LosesRows {
  static constexpr index_t begin(index_t rows, index_t ranks, index_t rank) noexcept { return rows / ranks * rank; }
};
struct ManyParameters {  // as a group of 65536 looks from outside, without the time to make one
  tide::Parameter first;
  constexpr tide::GroupView view() const { return {{&first, 65536}, {}}; }
};

#if TIDE_CASE == 1  // expect: tide::ShardLayout: Group must be a constexpr variable made by tide::group
auto group = tide::group(w);
ShardLayout<group, Mesh<1, 2>> subject;
#elif TIDE_CASE == 2   // expect: tide::ShardLayout: Group must be a constexpr variable made by tide::group
ShardLayout<w, Mesh<1, 2>> subject;
#elif TIDE_CASE == 3   // expect: tide::ShardLayout: M must be a tide::Mesh
constexpr auto group = tide::group(w);
ShardLayout<group, int> subject;
#elif TIDE_CASE == 4   // expect: tide::ShardLayout: Pack must be a Packing
constexpr auto group = tide::group(w);
ShardLayout<group, Mesh<1, 2>, NoRule> subject;
#elif TIDE_CASE == 5   // expect: tide::ShardLayout: Storage must be a tide::DenseStorage
constexpr auto group = tide::group(w);
ShardLayout<group, Mesh<1, 2>, tide::TightPacking, tide::Bytes<256>> subject;
#elif TIDE_CASE == 6   // expect: tide::ShardLayout: the start_alignment of Pack must be a power of two, at most 1 GiB
constexpr auto group = tide::group(w);
ShardLayout<group, Mesh<1, 2>, OddStarts> subject;
#elif TIDE_CASE == 7   // expect: tide::ShardLayout: a group needs at least one parameter
constexpr auto group = tide::group();
ShardLayout<group, Mesh<1, 2>> subject;
#elif TIDE_CASE == 8   // expect: tide::ShardLayout: a group has at most 65535 parameters
constexpr ManyParameters group{w};
ShardLayout<group, Mesh<1, 2>> subject;
#elif TIDE_CASE == 9   // expect: tide::ShardLayout: a parameter needs at least one dimension // names: logit_scale
constexpr auto group = tide::group(param<tide::bf16>("logit_scale", {}));
ShardLayout<group, Mesh<1, 2>> subject;
#elif TIDE_CASE == 10  // expect: tide::ShardLayout: a parameter has at most 8 dimensions
constexpr auto group = tide::group(param<tide::bf16>("w", {1, 2, 3, 4, 5, 6, 7, 8, 9}));
ShardLayout<group, Mesh<1, 2>> subject;
#elif TIDE_CASE == 11  // expect: tide::ShardLayout: extents must not be negative
constexpr auto group = tide::group(param<tide::bf16>("w", {4, -6}));
ShardLayout<group, Mesh<1, 2>> subject;
#elif TIDE_CASE == 12  // expect: tide::ShardLayout: a group must have fewer than 2^44 elements
constexpr auto group = tide::group(param<tide::bf16>("w", {index_t{1} << 40, index_t{1} << 40}));
ShardLayout<group, Mesh<1, 2>> subject;
#elif TIDE_CASE == 13  // expect: tide::ShardLayout: names in a group must differ
// snippet: broken-at-compile-time
constexpr auto group = tide::group(w, w);
ShardLayout<group, Mesh<1, 2>> subject;
// end: broken-at-compile-time
#elif TIDE_CASE == 14  // expect: tide::ShardLayout: names in a group must differ // names: e.3.w
constexpr auto group = tide::group(tide::repeat<4>("e.{}.", w), param<tide::bf16>("e.3.w", {4}));
ShardLayout<group, Mesh<1, tide::dynamic>> subject(Mesh<1, tide::dynamic>(1, 2));
#elif TIDE_CASE == 15  // expect: tide::ShardLayout: the target of an alias must be a parameter of the group
constexpr auto group = tide::group(w, tide::alias("tied", "v"));
ShardLayout<group, Mesh<1, 2>> subject;
#elif TIDE_CASE == 16  // expect: tide::ShardLayout: the sharded dimension must be one of the parameter's dimensions
constexpr auto group = tide::group(param<tide::bf16>("w", {4, 6}, tide::shard(2)));
ShardLayout<group, Mesh<1, 2>> subject;
#elif TIDE_CASE == 17  // expect: tide::ShardLayout: a sharded dimension other than 0 must be a multiple of the ranks
constexpr auto group = tide::group(param<tide::bf16>("w", {4, 6}, tide::shard(1)));
ShardLayout<group, Mesh<1, 4>> subject;
#elif TIDE_CASE == 18  // expect: tide::ShardLayout: ragged rows need one count per rank of the mesh
constexpr auto group = tide::group(param<tide::bf16>("w", {4, 6}, tide::ragged<1, 2, 1>()));
ShardLayout<group, Mesh<1, 2>> subject;
#elif TIDE_CASE == 19  // expect: tide::ShardLayout: ragged rows must not be negative and must add up to dimension 0
constexpr auto group = tide::group(param<tide::bf16>("w", {4, 6}, tide::ragged<1, 2>()));  // whatever the ranks
ShardLayout<group, Mesh<1, 2>> subject;
#elif TIDE_CASE == 20  // expect: tide::ShardLayout: a shard rule must cut all rows into consecutive ranges // names: w
constexpr auto group = tide::group(param<tide::bf16>("w", {4, 6}, tide::shard_by<LosesRows>()));
ShardLayout<group, Mesh<1, 3>> subject;
#elif TIDE_CASE == 21  // expect: tide::ShardLayout: the group has no parameter of this name
constexpr auto group = tide::group(w);
constexpr auto subject = ShardLayout<group, Mesh<1, 2>>::index<"v">();
#elif TIDE_CASE == 22  // expect: tide::ShardLayout: the group has no parameter of this name
constexpr auto group = tide::group(w);
ShardLayout<group, Mesh<1, 2>>::tensor<"W"> subject(nullptr);
#elif TIDE_CASE == 23  // expect: tide::ShardLayout: the pattern of tide::repeat must hold {} // names: experts.w
constexpr auto group = tide::group(tide::repeat<2>("experts.", w));
ShardLayout<group, Mesh<1, 2>> subject;
#elif TIDE_CASE == 24  // expect: tide::ShardLayout: elements must be enumerators of tide::Element // names: v
constexpr tide::Parameter unknown{tide::Name{{}, 0, "v"}, {4}, static_cast<tide::Element>(99), tide::Element::bf16};
constexpr auto group = tide::group(w, unknown);
ShardLayout<group, Mesh<1, 2>> subject;
#elif TIDE_CASE == 25  // expect: tide::ShardLayout: a repeated parameter must be asked for with its number
constexpr auto group = tide::group(tide::repeat<2>("e.{}.", w));
constexpr auto subject = ShardLayout<group, Mesh<1, 2>>::index<"e.{}.w">();
#elif TIDE_CASE == 26  // expect: tide::ShardLayout: the group repeats no parameter that is written so
constexpr auto group = tide::group(tide::repeat<2>("e.{}.", w));
const auto subject = ShardLayout<group, Mesh<1, 2>>::index<"e.{}.v">(0);
#else                  // control: the same with legal arguments
constexpr auto group =
    tide::group(w, param<tide::bf16>("v", {1}), param<tide::bf16>("columns", {4, 6}, tide::shard(1)),
                param<tide::bf16>("ragged", {4, 6}, tide::ragged<1, 3>()), tide::repeat<4>("e.{}.", w),
                param<tide::bf16>("ruled", {4, 6}, tide::shard_by<LosesRows>()), tide::alias("tied", "v"));
ShardLayout<group, Mesh<1, 2>, EvenStarts, tide::DenseStorage<tide::Bytes<16>>> subject;
ShardLayout<group, Mesh<1, tide::dynamic>> dynamic_subject(Mesh<1, tide::dynamic>(1, 2));
ShardLayout<group, Mesh<1, 2>>::tensor<"tied"> tensor(nullptr);
ShardLayout<group, Mesh<1, 2>>::tensor<"e.{}.w"> repeated(nullptr);
const auto position = ShardLayout<group, Mesh<1, 2>>::index<"e.{}.w">(3);
constexpr ManyParameters not_too_many{w};
#endif
