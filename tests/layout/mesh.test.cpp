// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <tide/layout/mesh.hpp>

#include <string>
#include <type_traits>
#include <utility>

#include "support/laws.hpp"
#include "support/raised.hpp"

namespace {

namespace laws = tide_test::laws;
using tide::dynamic;
using tide::Mesh;
using tide::MeshShape;
using tide::Rank;

static_assert(laws::mesh(MeshShape{1, 1}) && laws::mesh(MeshShape{1, 8}) && laws::mesh(MeshShape{8, 1}));
static_assert(laws::mesh(MeshShape{2, 3}) && laws::mesh(MeshShape{3, 5}) && laws::mesh(MeshShape{128, 8}));

static_assert(Mesh<2, 3>().ranks() == 6 && Mesh<2, 3>().nodes() == 2 && Mesh<2, 3>().ranks_per_node() == 3);
static_assert(Mesh<2, 3>().shape() == MeshShape{2, 3} && Mesh<2, 3>().shape() != MeshShape{3, 2});
static_assert(Mesh<2, 3>().shape().node(Rank{4}) == 1 && Mesh<2, 3>().shape().local(Rank{4}) == 1);
static_assert(Mesh<2, 3>().shape().rank(1, 2) == Rank{5});
static_assert(Mesh<1, 65535>().ranks() == tide::max_ranks && Mesh<65535, 1>().ranks() == tide::max_ranks);

static_assert(Mesh<2, 8>::is_static && !Mesh<dynamic, 8>::is_static && !Mesh<2, dynamic>::is_static);
static_assert(!Mesh<dynamic, dynamic>::is_static);
static_assert(std::is_default_constructible_v<Mesh<2, 8>> && !std::is_default_constructible_v<Mesh<2, dynamic>>);

// What is dynamic may still be known to the compiler.
static_assert(Mesh<dynamic, 8>(3, 8).ranks() == 24 && Mesh<dynamic, dynamic>(3, 5).ranks() == 15);
static_assert(Mesh<2, 8>(2, 8).shape() == Mesh<2, 8>().shape());

TEST_CASE("Mesh: sizes that are not positive are refused in the words of the compile error") {
  for (const tide::index_t wrong : {0, -1, -7}) {
    CHECK(tide_test::text_of([&] { Mesh<dynamic, dynamic>(wrong, 8); }) ==
          "tide::Mesh: Nodes must be positive; or tide::dynamic.");
    CHECK(tide_test::text_of([&] { Mesh<dynamic, dynamic>(2, wrong); }) ==
          "tide::Mesh: RanksPerNode must be positive; or tide::dynamic.");
  }
}

TEST_CASE("Mesh: more than 65535 ranks are refused, also where their product would not fit into 64 bits") {
  for (const auto& [nodes, ranks_per_node] : {std::pair<tide::index_t, tide::index_t>{2, 32768},
                                              {65536, 1},
                                              {1, 65536},
                                              {tide::index_t{1} << 40, tide::index_t{1} << 40}}) {
    CHECK(tide_test::text_of([&, n = nodes, g = ranks_per_node] { Mesh<dynamic, dynamic>(n, g); }) ==
          "tide::Mesh: a mesh has at most 65535 ranks.");
  }
}

TEST_CASE("Mesh: a size given at run time must be the static one") {
  const auto error = tide_test::raised([] { Mesh<2, dynamic>(3, 8); });
  REQUIRE(error.has_value());
  CHECK(error->code() == tide::Errc::mismatch);
  CHECK(error->what() ==
        std::string("tide::Mesh: sizes given at run time must equal the static ones; static 2xdynamic, "
                    "given 3x8."));
  CHECK(tide_test::text_of([] { Mesh<2, 8>(2, 4); }).find("static 2x8, given 2x4") != std::string::npos);
}

TEST_CASE("Mesh: every rank has one place in every mesh of up to 8 x 8") {
  for (tide::index_t nodes = 1; nodes <= 8; ++nodes) {
    for (tide::index_t ranks_per_node = 1; ranks_per_node <= 8; ++ranks_per_node) {
      CHECK(laws::mesh(Mesh<dynamic, dynamic>(nodes, ranks_per_node).shape()));
    }
  }
}

}  // namespace
