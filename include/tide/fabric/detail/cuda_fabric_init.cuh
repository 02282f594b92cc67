// SPDX-License-Identifier: Apache-2.0
//
// The member functions of CudaFabric that build: what is reserved and attached, and the collective init.

#pragma once

#include <tide/fabric/cuda_fabric.cuh>
#include <tide/fabric/detail/variants.hpp>  // require_one_handshake, fingerprint_of

#include <algorithm>
#include <thread>

namespace tide {

inline CudaFabric::CudaFabric(const CudaCommunicators& communicators, CudaOptions options)
    : options_(options),
      communicators_(&communicators),
      gather_(communicators.gather()),
      device_(communicators.device()) {
  detail::require_nccl();
  if (gather_ == nullptr) {
    raise(Errc::order, "tide::CudaFabric: communicators that a failed fabric has given up cannot be used again.");
  }
  int rank = 0;
  detail::check(ncclCommUserRank(gather_, &rank), "ncclCommUserRank");
  const detail::NcclFindings found(gather_);
  no_puts_ = found.no_puts;
  nodes_ = detail::CudaNodes(found, options_);
  rank_ = nodes_.in_mesh(rank);
  mesh_ = nodes_.mesh;
  if (mesh_.nodes > 1 && communicators.distrusted()) {
    raise(
        Errc::order,
        "tide::CudaFabric: over several nodes, communicators of a fabric that has failed, or was not closed, cannot be "
        "used again; what NCCL has counted on them is not known.");
  }
  const detail::DeviceGuard guard(device_);
  int has_words = 0;
  detail::check(cuDeviceGetAttribute(&has_words, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device_),
                "cuDeviceGetAttribute");
  if (has_words == 0) {
    raise(Errc::operation, detail::text({"tide::CudaFabric: a GPU must have 64-bit stream memory operations; GPU ",
                                         device_, " of rank ", rank_.value, " has none."}));
  }
  detail::check(cudaStreamCreateWithFlags(&init_stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  detail::check(cudaStreamCreateWithFlags(&rescue_stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  detail::check(cudaMalloc(&meeting_word_, sizeof(int)), "cudaMalloc");
}

inline CudaFabric::~CudaFabric() { stop(); }

inline CudaStream CudaFabric::stream() {
  if (phase_ == Phase::closed) raise(Errc::order, "tide::CudaFabric: a stream cannot be made after close.");
  const detail::DeviceGuard guard(device_);
  cudaStream_t made = nullptr;
  detail::check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreate");
  streams_.push_back(made);
  return {*this, made};
}

inline std::string CudaFabric::lacks(Capability capability) const {
  if (has(capability)) return {};
  if (capability == Capability::puts) return no_puts_;
  return capability == Capability::send_receive ? "sends and receives are not supported in this version"
                                                : "there is no multicast address in this version";
}

inline cudaStream_t CudaFabric::lane(Operation operation, Lane lane) {
  cudaStream_t& made = lanes_[{operation, lane.kind, lane.index}];
  if (made == nullptr) {
    // Sums are short: at the highest priority they start at the first boundary of a kernel that fills the GPU.
    int least = 0;
    int greatest = 0;
    detail::check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    detail::check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
  }
  return made;
}

inline index_t CudaFabric::reserve(index_t bytes, index_t alignment) {
  if (phase_ != Phase::building) {
    raise(Errc::order, "tide::CudaFabric: pipelines, pools and storage must be constructed before init.");
  }
  const index_t offset = align_up(reserved_, alignment);
  reserved_ = offset + bytes;
  return offset;
}

inline std::int32_t CudaFabric::new_counter(std::vector<detail::CudaEvent>& ring, bool of_program) {
  counters_.push_back({&ring, 0, of_program});
  return static_cast<std::int32_t>(counters_.size()) - 1;
}

inline std::int32_t CudaFabric::attach(std::vector<PlanVariant> variants, ArenaPlaces places, std::string label) {
  if (phase_ != Phase::building) {
    raise(Errc::order, "tide::CudaFabric: pipelines, pools and storage must be constructed before init.");
  }
  detail::require_one_handshake(variants, label);
  const std::uint64_t print = detail::fingerprint_of(variants);
  const detail::DeviceGuard guard(device_);
  auto program = std::make_unique<detail::CudaProgram>();
  program->words = variants.front().collective.words();
  program->places = places;
  program->label = std::move(label);
  program->landed.assign(static_cast<std::size_t>(mesh_.ranks()), 0);
  for (PlanVariant& given : variants) {
    const Operation operation = given.collective.operation;
    auto& made = program->variants.emplace_back(std::make_unique<detail::CudaVariant>(
        given.collective, std::move(given.kernels), std::move(given.plan), places.network_inbox));
    for (const Lane& each : made->plan.lanes) {
      made->lanes.push_back(each.kind == LaneKind::caller ? nullptr : lane(operation, each));
    }
    made->prepare();
    while (program->events.size() < made->plan.lanes.size()) program->events.emplace_back();
    for (const Exit& exit : made->plan.exits) {
      auto& ring = program->exits[static_cast<std::size_t>(exit.kind)];
      if (!ring.empty()) continue;
      for (std::uint64_t i = 0; i < detail::CudaProgram::max_runs; ++i) ring.emplace_back();
      program->counters[static_cast<std::size_t>(exit.kind)] = new_counter(ring, true);
    }
    if (made->collective.gradients == GradientSource::table) {
      program->table_entries = static_cast<index_t>(made->gradient_start.size());
    }
  }
  if (program->table_entries > 0) {
    const std::size_t bytes = static_cast<std::size_t>(program->table_entries) * 8 * detail::CudaProgram::max_runs;
    detail::check(cudaMalloc(&program->table, bytes), "cudaMalloc");
    detail::check(cudaMallocHost(&program->host_table, bytes), "cudaMallocHost");
  }
  fingerprints_.push_back(print);
  programs_.push_back(std::move(program));
  return static_cast<std::int32_t>(programs_.size()) - 1;
}

// Every rank gets the words of all ranks, and so comes to the same verdict.
inline void CudaFabric::compare_ranks() {
  std::vector<std::uint64_t> own{static_cast<std::uint64_t>(reserved_), fingerprints_.size()};
  std::uint64_t all = 0;
  for (const std::uint64_t print : fingerprints_) all = all * 1099511628211ULL + print;
  own.push_back(all);
  const auto ranks = static_cast<std::size_t>(mesh_.ranks());
  std::vector<std::uint64_t> got(own.size() * ranks);
  std::uint64_t* device = nullptr;
  detail::check(cudaMalloc(&device, got.size() * 8), "cudaMalloc");
  std::uint64_t* mine = device + own.size() * static_cast<std::size_t>(nodes_.in_communicator(rank_));
  detail::check(cudaMemcpyAsync(mine, own.data(), own.size() * 8, cudaMemcpyHostToDevice, init_stream_),
                "cudaMemcpyAsync");
  detail::check(ncclAllGather(mine, device, own.size(), ncclUint64, gather_, init_stream_), "ncclAllGather");
  poll("init", [this] { return !detail::is_busy(init_stream_); });
  detail::check(cudaMemcpy(got.data(), device, got.size() * 8, cudaMemcpyDeviceToHost), "cudaMemcpy");
  detail::check(cudaFree(device), "cudaFree");
  constexpr std::string_view things[] = {"the size of the arena", "how many they have", "what they are"};
  for (std::size_t r = 1; r < ranks; ++r) {
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (got[r * own.size() + i] == got[i]) continue;
      failure_.set(
          Errc::mismatch,
          detail::text({"tide::CudaFabric: all ranks must construct the same pipelines in the same order; ranks 0 and ",
                        nodes_.in_mesh(static_cast<index_t>(r)).value, " differ in ", things[i], ": ", got[i], " and ",
                        got[r * own.size() + i], "."}));
      failure_.raise_it();
    }
  }
}

// What stands in for gradients that are missing from tables.
inline void CudaFabric::make_zeros() {
  index_t bytes = 1;
  for (const auto& program : programs_) {
    for (const auto& variant : program->variants) {
      if (variant->collective.gradients != GradientSource::table) continue;
      bytes = std::max(bytes, variant->largest_gradient);
    }
  }
  detail::check(cudaMalloc(&zeros_, static_cast<std::size_t>(bytes)), "cudaMalloc");
  detail::check(cudaMemsetAsync(zeros_, 0, static_cast<std::size_t>(bytes), init_stream_), "cudaMemsetAsync");
  detail::check(cudaStreamSynchronize(init_stream_), "cudaStreamSynchronize");
}

// A kernel's first launch loads its code, which blocks the host behind unmet waits: so every kernel is launched here.
inline void CudaFabric::load_kernels() {
  // Bulk loads came with compute capability 9.0; some GPUs since then have too little shared memory for their rings.
  int major = 0;
  int shared_bytes = 0;
  detail::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_), "cudaDeviceGetAttribute");
  detail::check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device_),
                "cudaDeviceGetAttribute");
  has_bulk_loads_ = major >= 9 && shared_bytes >= detail::most_bulk_shared_bytes;
  if (has_bulk_loads_) detail::check(detail::launch_copy({}, 1, init_stream_), "a kernel");
  for (const auto& program : programs_) {
    for (const auto& variant : program->variants) {
      for (std::size_t k = 0; k < variant->code.size(); ++k) {
        detail::CudaLaunch nothing;
        nothing.inputs = variant->collective.kernels[k].inputs;
        for (const bool bulk : {false, true}) {
          if (bulk && !has_bulk_loads_) continue;
          nothing.bulk = bulk;
          detail::check(reinterpret_cast<detail::CudaKernel>(variant->code[k])(nothing, 1, init_stream_), "a kernel");
        }
      }
    }
  }
  detail::check(cudaStreamSynchronize(init_stream_), "cudaStreamSynchronize");
}

// Collective over all ranks: whether it is good for every one of them.
inline bool CudaFabric::meet(bool is_good) {
  int good = is_good ? 1 : 0;
  int* const word = meeting_word_;
  detail::check(cudaMemcpyAsync(word, &good, sizeof(int), cudaMemcpyHostToDevice, init_stream_), "cudaMemcpyAsync");
  detail::check(ncclAllReduce(word, word, 1, ncclInt, ncclMin, gather_, init_stream_), "ncclAllReduce");
  poll("all ranks to meet", [this] {
    if (phase_ == Phase::running) static_cast<void>(listen());
    return !detail::is_busy(init_stream_);
  });
  if (failure_.failed()) failure_.raise_it();
  detail::check(cudaMemcpy(&good, word, sizeof(int), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return good != 0;
}

// The same verdict on all ranks: the others would wait for one that has raised.
inline void CudaFabric::require_reach() {
  index_t missing = -1;
  for (index_t local = 0; local < mesh_.ranks_per_node; ++local) {
    const index_t r = mesh_.rank(mesh_.node(rank_), local).value;
    if (window_.peer(r, rank_.value) == nullptr) missing = r;
  }
  if (meet(missing < 0)) return;
  failure_.set(Errc::operation,
               missing < 0 ? std::string("tide::CudaFabric: all ranks of a node must reach each other; on another rank "
                                         "they do not.")
                           : detail::text({"tide::CudaFabric: all ranks of a node must reach each other; rank ",
                                           rank_.value, " cannot reach rank ", missing, "."}));
  failure_.raise_it();
}

inline void CudaFabric::init() {
  if (failure_.failed()) failure_.raise_it();
  if (phase_ == Phase::closed) require_running("init");
  if (phase_ != Phase::building) raise(Errc::order, "tide::CudaFabric: init must be called once.");
  const detail::DeviceGuard guard(device_);
  compare_ranks();
  if (mesh_.nodes > 1) network_words_ = reserve(32, 256);
  const index_t mail = reserve(detail::CudaMail::bytes(mesh_.ranks()), 256);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  detail::check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  // Both verdicts are agreed before any rank acts on them.
  if (!meet(static_cast<std::size_t>(reserved_) < free_bytes)) {
    failure_.set(
        Errc::capacity,
        detail::text({"tide::CudaFabric: the arena must fit into memory; needs ", detail::gibibytes(reserved_),
                      ", has ", detail::gibibytes(static_cast<index_t>(free_bytes)), " on rank ", rank_.value, "."}));
    failure_.raise_it();
  }
  if (!meet(window_.allocate(reserved_))) {
    failure_.set(Errc::capacity, detail::text({"tide::CudaFabric: the arena of ", detail::gibibytes(reserved_),
                                               " could not be allocated on every rank."}));
    failure_.raise_it();
  }
  window_.register_memory(gather_, mesh_.ranks(), init_stream_);
  open_networks();
  require_reach();
  mail_.open(window_, mail, mesh_.ranks(), rank_.value, init_stream_);
  if (const std::vector<int> far = far_ranks(); !far.empty()) {
    if (communicators_->mail() == nullptr) {
      raise(Errc::argument,
            "tide::CudaCommunicators: ranks on several machines need a third communicator, for letters.");
    }
    mail_.reach_far(window_, communicators_->mail(), far);
  }
  check_paths();
  for (const auto& program : programs_) {
    detail::check(cudaMemsetAsync(window_.memory() + program->places.signals, 0,
                                  static_cast<std::size_t>(program->words.bytes()), init_stream_),
                  "cudaMemsetAsync");
    const NetworkShape& shape = program->variants.front()->collective.network;
    if (!shape.starts_as_zeros()) continue;
    detail::check(cudaMemsetAsync(window_.memory() + program->places.network_inbox, 0,
                                  static_cast<std::size_t>(shape.inbox_instances * shape.inbox_bytes), init_stream_),
                  "cudaMemsetAsync");
  }
  index_t most_words = 1;
  for (const auto& program : programs_) most_words = std::max(most_words, program->words.count());
  detail::check(cudaMallocHost(&seen_words_, static_cast<std::size_t>(most_words) * 8), "cudaMallocHost");
  if (options_.missing_gradients) make_zeros();
  load_kernels();
  static_cast<void>(meet(true));  // no rank signals before all words are zero
  phase_ = Phase::running;
  watchdog_ = std::thread([this] { watch(); });
  if (!pair_) return;
  pair_->come(*this);
  const detail::Failure& other = pair_->other(*this).failure_;
  if (!other.failed()) return;
  fail(other.code(), other.text());
  failure_.raise_it();
}

// What puts need, where there are several nodes: windows of both communicators over the one arena, and streams.
inline void CudaFabric::open_networks() {
  std::vector<int> numbers;
  for (index_t r = 0; r < mesh_.ranks(); ++r) numbers.push_back(communicator_rank(r));
  window_.renumber(numbers);
  if (mesh_.nodes == 1) return;
  if (no_puts_.empty()) {
    const std::vector<int> far = far_ranks();
    const ncclComm_t reduce = communicators_->reduce();
    network(Operation::gather).open(window_, window_.window_of(gather_), gather_, numbers.size(), network_words_, far);
    network(Operation::reduce)
        .open(window_, window_.register_on(reduce), reduce, numbers.size(), network_words_ + 16, far);
  }
  if (options_.multicast != CudaMulticast::emulated) return;
  std::vector<const std::byte*> memories;
  for (index_t local = 0; local < mesh_.ranks_per_node; ++local) {
    memories.push_back(window_.peer(mesh_.rank(mesh_.node(rank_), local).value, rank_.value));
  }
  detail::check(cudaMalloc(&node_memories_, memories.size() * sizeof memories[0]), "cudaMalloc");
  detail::check(
      cudaMemcpy(node_memories_, memories.data(), memories.size() * sizeof memories[0], cudaMemcpyHostToDevice),
      "cudaMemcpy");
}

// The ranks whose memory this process does not reach, in the communicator.
inline std::vector<int> CudaFabric::far_ranks() const {
  std::vector<int> far;
  for (index_t r = 0; r < mesh_.ranks(); ++r) {
    if (window_.peer(r, rank_.value) == nullptr) far.push_back(communicator_rank(r));
  }
  return far;
}

// The small part of tide_doctor: what every rank sends every other on the path of plans arrives as it was sent.
inline void CudaFabric::check_paths() {
  static_cast<void>(meet(true));  // every rank has zeroed its letters
  mail_.send_greetings(init_stream_);
  if (const cudaStream_t far = mail_.far_stream(); far != nullptr) {
    poll("init", [far] { return !detail::is_busy(far); });
  }
  static_cast<void>(meet(true));
  const index_t wrong = mail_.wrong_greeting(init_stream_);
  if (meet(wrong < 0)) return;
  failure_.set(Errc::operation,
               wrong < 0
                   ? detail::text({"tide::CudaFabric: what a rank copies to another must arrive as it was sent; it "
                                   "did not on another rank than ",
                                   rank_.value, ". tide_doctor says more."})
                   : detail::text({"tide::CudaFabric: what a rank copies to another must arrive as it was sent; "
                                   "what rank ",
                                   wrong, " sent to rank ", rank_.value, " did not. tide_doctor says more."}));
  failure_.raise_it();
}

}  // namespace tide
