// SPDX-License-Identifier: Apache-2.0
//
// A hash table from 64-bit keys to small values in one array; nothing is ever removed. A third of the time of
// std::unordered_map in verify.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tide::detail {

template <class Value>
class FlatTable {
 public:
  // The value of a key; null where it has none. Valid until the next `at`.
  [[nodiscard]] const Value* find(std::uint64_t key) const noexcept {
    if (entries_.empty()) return nullptr;
    const Entry& entry = entries_[place(key)];
    return entry.key == key + 1 ? &entry.value : nullptr;
  }

  // The value of a key, `fresh` where it had none. Valid until the next `at`.  @pre key != 2^64 - 1
  [[nodiscard]] Value& at(std::uint64_t key, Value fresh) {
    if (2 * (size_ + 1) > entries_.size()) grow();
    Entry& entry = entries_[place(key)];
    if (entry.key == 0) {
      entry = {key + 1, fresh};
      ++size_;
    }
    return entry.value;
  }

 private:
  struct Entry {
    std::uint64_t key = 0;  // plus 1; 0 where the place is free
    Value value{};
  };

  [[nodiscard]] std::size_t place(std::uint64_t key) const noexcept {
    const std::size_t mask = entries_.size() - 1;
    std::uint64_t mixed = key * 0x9E3779B97F4A7C15ULL;
    mixed ^= mixed >> 32;
    std::size_t i = static_cast<std::size_t>(mixed) & mask;
    while (entries_[i].key != 0 && entries_[i].key != key + 1) i = (i + 1) & mask;
    return i;
  }

  void grow() {
    std::vector<Entry> old(entries_.empty() ? 64 : 2 * entries_.size());
    std::swap(old, entries_);
    for (const Entry& entry : old) {
      if (entry.key != 0) entries_[place(entry.key - 1)] = entry;
    }
  }

  std::vector<Entry> entries_;  // a power of two, at most half full
  std::size_t size_ = 0;
};

}  // namespace tide::detail
