// SPDX-License-Identifier: Apache-2.0
//
// What the epilogues do to numbers of every kind is in tests/pipeline/reduce_scatter.test.cpp.

#include <doctest/doctest.h>

#include <tide/reduce/epilogue.hpp>

#include "conformance/epilogue.hpp"

namespace epilogue_test {

using namespace tide;

/// A user's: a sum that is added, by another name.
struct MicroBatches {
  static constexpr Finish finish = Finish::accumulate;
};

static_assert(Epilogue<Store> && Epilogue<Accumulate> && Epilogue<MicroBatches>);
static_assert(!Epilogue<int>);
static_assert(Store::finish == Finish::store && Accumulate::finish == Finish::accumulate);

TEST_CASE("Epilogue: the suite holds for the models that ship, and for one's own") {
  tide_test::check_epilogue<Store>();
  tide_test::check_epilogue<Accumulate>();
  tide_test::check_epilogue<MicroBatches>();
}

}  // namespace epilogue_test
