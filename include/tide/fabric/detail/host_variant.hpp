// SPDX-License-Identifier: Apache-2.0
//
// A plan as it runs on a CPU: ops by lane, kernels looked up once; its runs, and what errors say of its ops.

#pragma once

#include <tide/core/text.hpp>                   // text
#include <tide/fabric/detail/host_kernels.hpp>  // HostCast, HostSum
#include <tide/fabric/detail/zeros.hpp>         // Zeros
#include <tide/fabric/fabric.hpp>               // Bindings
#include <tide/plan/print.hpp>                  // describe_source

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tide::detail {

// An entry of a kernel table, looked up.
struct HostKernel {
  HostCast cast = nullptr;  // or a sum
  HostSum sum = nullptr;
  HostSwitchSum switch_sum = nullptr;
  index_t input_bytes = 0;  // of an element
  std::int32_t inputs = 0;
  bool scaled = false;
};

// One plan of a pipeline, prepared: ops by lane, kernels looked up.
struct HostVariant {
  Plan plan;
  InboxShape inbox;
  NetworkShape network;
  Operation operation;
  std::vector<std::vector<index_t>> ops;  // by lane, positions in the issue order
  std::vector<HostKernel> kernels;
  std::vector<index_t> gradient_start;  // by parameter
  index_t largest_gradient = 0;         // bytes, where each gradient has a pointer

  HostVariant(const Collective& collective, const std::vector<KernelCode>& code, Plan written)
      : plan(std::move(written)),
        inbox(collective.inbox),
        network(collective.network),
        operation(collective.operation),
        ops(plan.lanes.size()) {
    for (std::size_t i = 0; i < plan.ops.size(); ++i) ops[plan.ops[i].lane].push_back(static_cast<index_t>(i));
    for (std::size_t k = 0; k < collective.kernels.size(); ++k) {
      const Kernel& kernel = collective.kernels[k];
      // A sum of one input that comes out in another element than f32 is a cast.
      const bool casts_it = kernel.kind == Kernel::Kind::cast || kernel.output != Element::f32;
      HostKernel& made = kernels.emplace_back();
      if (casts_it) {
        made.cast = reinterpret_cast<HostCast>(code[k]);
      } else if (kernel.kind == Kernel::Kind::switch_sum) {
        made.switch_sum = reinterpret_cast<HostSwitchSum>(code[k]);
      } else {
        made.sum = reinterpret_cast<HostSum>(code[k]);
      }
      made.input_bytes = static_cast<index_t>(size_bytes(kernel.input));
      made.inputs = kernel.inputs;
      made.scaled = kernel.finish != Finish::partial;
    }
    collective.layout.for_each_piece(plan.rank, [&](const Piece& piece) {
      gradient_start.push_back(piece.start[static_cast<std::size_t>(Buffer::gradients)]);
    });
    if (collective.gradients == GradientSource::table) largest_gradient = largest_gradient_bytes(collective.layout);
  }

  // Whether a lane has anything to do in a run.
  [[nodiscard]] bool uses(std::size_t lane) const noexcept {
    bool exits = false;
    for (const Exit& exit : plan.exits) exits = exits || static_cast<std::size_t>(exit.lane.value) == lane;
    return exits || !ops[lane].empty();
  }
};

// Runs of a plan that may be in flight; one more waits for the oldest.
inline constexpr std::uint64_t max_runs = 64;

// A run of a plan: what it is bound to.
struct HostRun {
  Bindings bindings{};
  const HostVariant* variant = nullptr;
  std::uint64_t call = 0;  // of the rank's calls
  std::vector<const void*> table{};

  explicit HostRun(std::size_t parameters) : table(parameters) {}

  // Makes the zeros for the first gradient that is missing from a table; what is wrong where there is no memory for
  // them. For a call that is not made yet: it can be refused on all ranks.
  [[nodiscard]] static const char* reserve_zeros(const HostVariant& of, const Bindings& given, Zeros& zeros) {
    const void* const* table = given.gradient_table;
    if (table == nullptr || std::count(table, table + of.gradient_start.size(), missing_gradient()) == 0)
      return nullptr;
    return zeros.reserve(of.largest_gradient);
  }

  // @param zeros  reserved
  void bind(const HostVariant& to, const Bindings& given, std::uint64_t number, const Zeros& zeros) {
    bindings = given;
    variant = &to;
    call = number;
    if (given.gradient_table == nullptr) return;
    std::copy_n(given.gradient_table, table.size(), table.begin());
    std::replace(table.begin(), table.end(), missing_gradient(), zeros.data());
    bindings.gradient_table = table.data();
  }
};

// Epochs are 64 bits and only grow.
[[nodiscard]] inline std::uint64_t epoch(std::uint64_t run, index_t per_run, index_t value) noexcept {
  return run * static_cast<std::uint64_t>(per_run) + static_cast<std::uint64_t>(value);
}

// Whether a word has come as far. The difference, not the values: what an earlier run than the first would have raised
// counts as there.
[[nodiscard]] inline bool has_reached(std::uint64_t word, std::uint64_t expected) noexcept {
  return static_cast<std::int64_t>(word - expected) >= 0;
}

// Calls f(word, value) for each word that a rank waits for: what it is before the run `first`.
template <class F>
void for_each_start(const std::vector<HostVariant>& variants, std::uint64_t first, const F& f) {
  for (const HostVariant& variant : variants) {
    for (const Op& op : variant.plan.ops) {
      if (op.kind == OpKind::wait) f(op.word(), epoch(first, op.per_run(), 0));
    }
  }
}

// "gather of 'w', step 1, rank 2, lane push 1, op 7 (copy)"
[[nodiscard]] inline std::string place_text(const std::string& label, const HostVariant& variant, index_t seq,
                                            std::uint64_t run) {
  const Op& op = variant.plan.ops[static_cast<std::size_t>(seq)];
  return text({label, ", step ", run, ", rank ", variant.plan.rank.value, ", lane ", variant.plan.lanes[op.lane].name(),
               ", op ", seq, " (", name(op.kind), ")"});
}

// That a put is one more than the network takes.
[[nodiscard]] inline std::string network_is_full(index_t depth, const std::string& place, const Op& op) {
  return text({"tide::Fabric: the network takes ", depth, " puts to a rank at a time; ", place, " to rank ", op.peer,
               " is one more."});
}

// That a hook of the user threw, asked about an op.
[[nodiscard]] inline std::string hook_threw(const std::string& place, const Op& op, const std::string& what) {
  const std::string to = op.raises() ? text({" to rank ", op.peer}) : std::string();
  return text({"tide::Fabric: a hook threw; ", place, to, ": ", what});
}

// That an op waits, for whom, and how far the word has come.
[[nodiscard]] inline std::string wait_text(const std::string& place, MeshShape mesh, const HostVariant& variant,
                                           const Op& op, std::uint64_t word, std::uint64_t expected) {
  return text({place, " waits for ", describe_source(mesh, variant.operation, variant.plan, op.word()), ": ",
               SignalWords{mesh.ranks()}.describe(op.word()), " is ", word, ", expected ", expected});
}

}  // namespace tide::detail
