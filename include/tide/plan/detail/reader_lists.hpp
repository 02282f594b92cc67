// SPDX-License-Identifier: Apache-2.0
//
// Who has read the bytes of a cell since they were written: of each lane, from which of its nodes to which. Not each
// node between them has, and not each has read all of the cell: `ReplayMemory` asks the ops where it matters, which is
// where a write is not ordered behind the last of them.

#pragma once

#include <tide/plan/detail/op_graph.hpp>  // NodeIndex, QueueIndex

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tide::detail {

class ReaderLists {
 public:
  using List = std::uint32_t;  // each is of one cell
  static constexpr List none = UINT32_MAX;

  struct Readers {
    NodeIndex first = no_node;
    NodeIndex last = no_node;
    QueueIndex queue = 0;
    bool stale = false;  // they have read what they should not have
  };

  // Adds nodes [first, last] that read, of a lane whose nodes are added in their order.
  void add(List& list, NodeIndex first, NodeIndex last, QueueIndex queue, bool stale) {
    List* place = &list;
    int left = looked_at;
    while (*place != none && left > 0 &&
           (links_[*place].readers.queue != queue || links_[*place].readers.stale != stale)) {
      place = &links_[*place].next;
      --left;
    }
    if (*place == none || left == 0) {
      list = make({{first, last, queue, stale}, list});
      return;
    }
    links_[*place].readers.last = std::max(links_[*place].readers.last, last);
    if (place == &list) return;
    const List found = *place;  // to the front: the lane will often read here again
    *place = std::exchange(links_[found].next, list);
    list = found;
  }

  // Calls f(readers) for each lane.
  template <class F>
  void for_each(List list, F f) const {
    for (; list != none; list = links_[list].next) f(links_[list].readers);
  }

  [[nodiscard]] List copy(List list) {
    List made = none;
    for (; list != none; list = links_[list].next) made = make({links_[list].readers, made});
    return made;
  }

  void drop(List& list) {
    while (list != none) {
      const List next = links_[list].next;
      links_[list].next = std::exchange(unused_, list);
      list = next;
    }
  }

 private:
  // Where many lanes read in turn, one may be there several times: that is cheaper than looking for it.
  static constexpr int looked_at = 4;

  struct Link {
    Readers readers;
    List next = none;
  };

  [[nodiscard]] List make(const Link& link) {
    if (unused_ == none) {
      links_.push_back(link);
      return static_cast<List>(links_.size()) - 1;
    }
    const List made = unused_;
    unused_ = links_[made].next;
    links_[made] = link;
    return made;
  }

  std::vector<Link> links_;
  List unused_ = none;
};

}  // namespace tide::detail
