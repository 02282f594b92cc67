// SPDX-License-Identifier: Apache-2.0
// labels: static
//
// What the epilogues do to numbers is in tests/pipeline/reduce_scatter.test.cpp; here is what they are.
#include <tide/reduce/epilogue.hpp>

using namespace tide;

static_assert(Epilogue<Store> && Epilogue<Accumulate>);
static_assert(!Epilogue<int>);
static_assert(Store::finish == Finish::store && Accumulate::finish == Finish::accumulate);
