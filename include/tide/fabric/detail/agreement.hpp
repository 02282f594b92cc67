// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a process have reserved and attached, and whether that is the same on all.

#pragma once

#include <tide/core/text.hpp>                // text
#include <tide/fabric/detail/failure.hpp>    // seconds_text
#include <tide/fabric/detail/variants.hpp>   // fingerprint_of, require_one_handshake
#include <tide/fabric/detail/word_uses.hpp>  // WordUse
#include <tide/fabric/fabric.hpp>            // ArenaPlaces

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

// A pipeline, as ranks compare it.
struct Attached {
  std::uint64_t fingerprint;
  ArenaPlaces places;
  std::string label;
  std::vector<WordUse> words;
};

// What a rank has said before `init`.
struct Declared {
  index_t reserved = 0;
  std::vector<Attached> attached{};

  [[nodiscard]] index_t reserve(index_t bytes, index_t alignment) {
    const index_t offset = align_up(reserved, alignment);
    reserved = offset + bytes;
    return offset;
  }

  // Adds a pipeline and returns which exits it has, by kind.
  std::array<bool, 3> attach(const std::vector<PlanVariant>& variants, ArenaPlaces places, const std::string& label) {
    require_one_handshake(variants, label);
    const auto program = static_cast<std::int32_t>(attached.size());
    attached.push_back({fingerprint_of(variants), places, label, word_uses(variants.front(), program)});
    std::array<bool, 3> exits{};
    for (const PlanVariant& variant : variants) {
      for (const Exit& exit : variant.plan.exits) exits[static_cast<std::size_t>(exit.kind)] = true;
    }
    return exits;
  }
};

// That ranks did not come to where all must, in time.  @param absent  "1, 3"
[[nodiscard]] inline std::string absent_text(const char* what, index_t ranks, Duration deadline,
                                             const std::string& absent) {
  return text({"tide::Fabric: ", what, " needs all ranks; of ", ranks, " these did not come within ",
               seconds_text(deadline), ": ", absent, "."});
}

// In what ranks differ, for people to read; empty where they agree.  @param of  (Rank) -> const Declared&
template <class Of>
[[nodiscard]] std::string disagreement_of(index_t rank_count, const Of& of) {
  const Declared& first = of(Rank{0});
  for (index_t r = 1; r < rank_count; ++r) {
    const Declared& other = of(Rank{r});
    const auto differ = [&](const std::string& what) {
      return text({"tide::Fabric: all ranks must construct the same pipelines in the same order; ranks 0 and ", r,
                   " differ in ", what, "."});
    };
    if (other.attached.size() != first.attached.size()) {
      return differ(text({"how many they have: ", first.attached.size(), " and ", other.attached.size()}));
    }
    for (std::size_t p = 0; p < first.attached.size(); ++p) {
      const Attached& one = first.attached[p];
      const Attached& two = other.attached[p];
      if (one.fingerprint != two.fingerprint) {
        return differ(text({"number ", p, ": ", one.label, " and ", two.label}));
      }
      if (one.places != two.places) {
        return differ(text({"what they constructed before number ", p, ": ", one.label}));
      }
    }
    if (other.reserved != first.reserved) {
      return differ(text({"the size of the arena: ", first.reserved, " and ", other.reserved, " bytes"}));
    }
  }
  std::vector<WordUse> uses;
  for (index_t r = 0; r < rank_count; ++r) {
    for (const Attached& each : of(Rank{r}).attached) uses.insert(uses.end(), each.words.begin(), each.words.end());
  }
  return disagreement(std::move(uses), SignalWords{rank_count}, [&](std::int32_t program) {
    return std::string_view(first.attached[static_cast<std::size_t>(program)].label);
  });
}

}  // namespace tide::detail
