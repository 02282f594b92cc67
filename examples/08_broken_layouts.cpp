// SPDX-License-Identifier: Apache-2.0
//
// Five layouts that cannot be. A group that is read at run time is refused by an error, one that is written in C++ by
// the compiler, and both say the same sentence: there is one set of rules behind the two doors.

#include "support/expect.hpp"

#include <tide/tide.hpp>

#include <cstdio>
#include <string>
#include <string_view>

using tide::Element;
using tide_example::expect;

// snippet: broken-layouts
struct Broken {
  std::string_view sentence;
  void (*make)(tide::DynamicGroup& group);
};

const Broken broken[] = {
    {"tide::ShardLayout: a parameter needs at least one dimension",
     [](tide::DynamicGroup& group) { group.add("temperature", {}, Element::bf16, Element::bf16); }},
    {"tide::ShardLayout: names in a group must differ",
     [](tide::DynamicGroup& group) {
       group.add("weight", {8, 8}, Element::bf16, Element::bf16);
       group.add("weight", {8}, Element::bf16, Element::bf16);
     }},
    {"tide::ShardLayout: the target of an alias must be a parameter of the group",
     [](tide::DynamicGroup& group) {
       group.add("embedding", {100, 8}, Element::bf16, Element::bf16);
       group.add_alias("head", "embeding");
     }},
    {"tide::ShardLayout: a sharded dimension other than 0 must be a multiple of the ranks",
     [](tide::DynamicGroup& group) {
       group.add("experts", {16, 30, 8}, Element::bf16, Element::bf16, tide::shard(1));
     }},
    {"tide::ShardLayout: ragged rows must not be negative and must add up to dimension 0",
     [](tide::DynamicGroup& group) {
       group.add("experts", {10, 8}, Element::bf16, Element::bf16, {}, {4, 4, 1, 0});
     }},
};
// end: broken-layouts

int main() {
  for (const Broken& one : broken) {
    tide::DynamicGroup group;
    one.make(group);
    std::string message = "(not refused)";
    try {
      const tide::DynamicLayout layout(group, {1, 4});
    } catch (const tide::Error& error) {
      message = error.what();
    }
    std::printf("%s\n", message.c_str());
    expect(message.starts_with(one.sentence), "the layout is refused in these words");
  }
  return tide_example::verdict();
}
