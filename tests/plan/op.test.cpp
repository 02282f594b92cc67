// SPDX-License-Identifier: Apache-2.0
// labels: static
#include <tide/plan/op.hpp>

using namespace tide;

static_assert(sizeof(Op) == 64 && std::is_trivially_copyable_v<Op>);
static_assert(name(OpKind::copy) == "copy" && name(OpKind::cast) == "cast" && name(OpKind::multicast) == "multicast");
static_assert(name(Space::master) == "master" && name(Space::signals) == "signals");
static_assert([] {
  Op op;
  op.width = 12;
  op.rows = 5;
  return op.bytes();
}() == 60);
static_assert([] {
  Op op;
  op.kind = OpKind::wait;
  op.width = -3;
  op.rows = 7;
  op.target_offset = 8 * 11;
  return op.value() == -3 && op.per_run() == 7 && op.word() == 11 && !op.moves();
}());
static_assert(Op{} == Op{});
