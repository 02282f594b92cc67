// SPDX-License-Identifier: Apache-2.0
//
// The member functions of CudaFabric that build: what is reserved and attached, and the collective init.

#pragma once

#include <tide/fabric/cuda_fabric.cuh>
#include <tide/fabric/detail/variants.hpp>  // require_one_handshake, require_one_rendezvous, fingerprint_of

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

namespace tide {

inline CudaFabric::CudaFabric(const CudaCommunicators& communicators, CudaOptions options)
    : options_(options),
      communicators_(&communicators),
      gather_(communicators.gather()),
      device_(communicators.device()) {
  options_.deadline = detail::bounded(options_.deadline);
  detail::require_nccl();
  if (gather_ == nullptr) {
    raise(Errc::order, "tide::CudaFabric: communicators that a failed fabric has given up cannot be used again.");
  }
  int rank = 0;
  detail::check(ncclCommUserRank(gather_, &rank), "ncclCommUserRank");
  const detail::NcclFindings found(gather_);
  no_puts_ = found.no_puts;
  machines_ = found.nodes;
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
  no_sends_ = detail::why_no_sends(mesh_.nodes > machines_, std::getenv("NCCL_LOCAL_REGISTER"));
  no_multicast_ = find_multicast(found.ranks / found.nodes);
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
  return capability == Capability::send_receive ? no_sends_ : no_multicast_;
}

// Why this rank has no multicast; empty where it has, as far as can be known before its address is asked for.
// @param team  ranks that reach each other's memory
inline std::string CudaFabric::find_multicast(index_t team) const {
  if (options_.multicast == CudaMulticast::emulated) return {};
  if (options_.multicast == CudaMulticast::missing) return "CudaOptions::multicast is missing";
  // A driver that does not know the attribute has no multicast.
  int value = 0;
  const bool gpu =
      cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device_) == CUDA_SUCCESS && value != 0;
  return detail::why_no_multicast(
      {gpu, std::getenv("NCCL_NVLS_ENABLE"), team, mesh_.ranks_per_node, detail::nccl_has_multimem(gather_)});
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
  auto rendezvous = detail::rendezvous_of(variants);
  detail::require_one_rendezvous(rendezvous, label);
  const std::uint64_t print = detail::fingerprint_of(variants);
  const auto program_index = static_cast<std::int32_t>(programs_.size());
  const std::vector<detail::WordUse> uses = detail::word_uses(variants.front(), program_index);
  const detail::DeviceGuard guard(device_);
  auto program = std::make_unique<detail::CudaProgram>();
  program->words = variants.front().collective.words();
  program->places = places;
  program->label = std::move(label);
  program->landed.assign(static_cast<std::size_t>(mesh_.ranks()), 0);
  for (std::size_t v = 0; v < variants.size(); ++v) {
    PlanVariant& given = variants[v];
    const Operation operation = given.collective.operation;
    auto& made = program->variants.emplace_back(
        std::make_unique<detail::CudaVariant>(given.collective, std::move(given.kernels), std::move(given.plan),
                                              places.network_inbox, std::move(rendezvous[v])));
    for (const Lane& each : made->plan.lanes) {
      made->lanes.push_back(each.kind == LaneKind::caller ? nullptr : lane(operation, each));
    }
    made->prepare();
    while (program->events.size() < made->plan.lanes.size()) program->events.emplace_back();
    while (made->is_two_sided && program->sent.size() < made->plan.lanes.size()) program->sent.emplace_back();
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
  word_uses_.insert(word_uses_.end(), uses.begin(), uses.end());
  programs_.push_back(std::move(program));
  return program_index;
}

// What was begun where ranks meet: NCCL connects them on the host, without end if one does not come, and then its
// kernel waits for them.
inline void CudaFabric::await(ncclResult_t begun, const char* call, const char* what) {
  const Duration limit = detail::meeting_deadline(options_.deadline);
  if (!communicators_->settles(begun, call, limit)) {
    // The communicators are over, and with them what was registered on them.
    nccl_multicast_.abandon();
    window_.abandon();
    fail_late(limit, what);
  }
  const auto met = [this] {
    if (phase_ == Phase::running) static_cast<void>(listen());
    return !detail::is_busy(init_stream_);
  };
  poll(what, met, limit);
}

// Collective over all ranks: as many words of each, in the order of the communicator.
inline std::vector<std::uint64_t> CudaFabric::words_of_all(const std::vector<std::uint64_t>& own) {
  std::vector<std::uint64_t> got(own.size() * static_cast<std::size_t>(mesh_.ranks()));
  std::uint64_t* device = nullptr;
  detail::check(cudaMalloc(&device, got.size() * 8), "cudaMalloc");
  std::uint64_t* mine = device + own.size() * static_cast<std::size_t>(nodes_.in_communicator(rank_));
  detail::check(cudaMemcpyAsync(mine, own.data(), own.size() * 8, cudaMemcpyHostToDevice, init_stream_),
                "cudaMemcpyAsync");
  await(ncclAllGather(mine, device, own.size(), ncclUint64, communicators_->meeting(), init_stream_), "ncclAllGather",
        "all ranks to come to init");
  detail::check(cudaMemcpy(got.data(), device, got.size() * 8, cudaMemcpyDeviceToHost), "cudaMemcpy");
  detail::check(cudaFree(device), "cudaFree");
  return got;
}

// Every rank gets the words of all ranks, and so comes to the same verdict.
inline void CudaFabric::compare_ranks() {
  std::vector<std::uint64_t> own{static_cast<std::uint64_t>(reserved_), fingerprints_.size()};
  std::uint64_t all = 0;
  for (const std::uint64_t print : fingerprints_) all = all * 1099511628211ULL + print;
  own.push_back(all);
  const auto ranks = static_cast<std::size_t>(mesh_.ranks());
  const std::vector<std::uint64_t> got = words_of_all(own);
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

// Whether ranks tell each other what they wait for. Every rank gets the words of all ranks here, too.
// @pre all ranks have as many programs, for the same collectives
inline void CudaFabric::compare_words() {
  constexpr std::size_t words_of_use = sizeof(detail::WordUse) / 8;
  const std::vector<std::uint64_t> counts = words_of_all({word_uses_.size()});
  const std::uint64_t most = *std::max_element(counts.begin(), counts.end());
  if (most == 0) return;
  std::vector<std::uint64_t> own(most * words_of_use, 0);
  if (!word_uses_.empty()) std::memcpy(own.data(), word_uses_.data(), word_uses_.size() * sizeof(detail::WordUse));
  const std::vector<std::uint64_t> got = words_of_all(own);
  std::vector<detail::WordUse> uses;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    const std::size_t known = uses.size();
    uses.resize(known + counts[r]);
    if (counts[r] == 0) continue;
    std::memcpy(static_cast<void*>(uses.data() + known), got.data() + r * own.size(),
                counts[r] * sizeof(detail::WordUse));
  }
  const std::string wrong = detail::disagreement(
      std::move(uses), SignalWords{mesh_.ranks()},
      [this](std::int32_t program) { return std::string_view(programs_[static_cast<std::size_t>(program)]->label); });
  if (wrong.empty()) return;
  failure_.set(Errc::mismatch, wrong);
  failure_.raise_it();
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
  await(ncclAllReduce(word, word, 1, ncclInt, ncclMin, communicators_->meeting(), init_stream_), "ncclAllReduce",
        "all ranks to meet");
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
  communicators_->open(machines_ > 1);
  compare_ranks();
  compare_words();
  if (mesh_.nodes > 1) network_words_ = reserve(2 * detail::CudaNetwork::words_bytes, 256);
  const index_t mail = reserve(detail::CudaMail::bytes(mesh_.ranks()), 256);
  agree_on_multicast();
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
  register_arena();
  open_networks();
  require_reach();
  open_multicast();
  mail_.open(window_, mail, mesh_.ranks(), rank_.value, init_stream_);
  if (const std::vector<int> far = far_ranks(); !far.empty() && no_puts_.empty()) {
    if (communicators_->mail() == nullptr) {
      raise(Errc::argument,
            "tide::CudaCommunicators: ranks on several machines need a third communicator, for letters.");
    }
    mail_.reach_far(window_, communicators_->mail(), far);
  }
  check_paths();
  check_sends();
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
  try_multicast();
  static_cast<void>(meet(true));  // no rank signals before all words are zero
  phase_ = Phase::running;
  watchdog_ = std::thread([this] { watch(); });
  if (!pair_) return;
  pair_->come(*this);
  const detail::Failure& other = pair_->other(*this).failure_;
  if (!other.failed()) return;
  fail(other.code(), other.text());
  raise_failure();
}

// Makes the arena a window. Between machines without puts NCCL has none for all ranks, but one for those of a machine.
inline void CudaFabric::register_arena() {
  if (no_puts_.empty() || machines_ == 1) {
    window_.register_memory(gather_, mesh_.ranks(), init_stream_);
    return;
  }
  const index_t ranks = mesh_.ranks() / machines_;
  const index_t own = communicator_rank(rank_.value);
  ncclConfig_t config = detail::nccl_configuration();
  detail::check(ncclCommSplit(gather_, static_cast<int>(own / ranks), static_cast<int>(own), &node_, &config),
                "ncclCommSplit");
  window_.register_memory(node_, ranks, init_stream_, own - own % ranks, mesh_.ranks());
}

// What crosses nodes, where there are several: streams, and where there are puts windows of both communicators over the
// one arena.
inline void CudaFabric::open_networks() {
  std::vector<int> numbers;
  for (index_t r = 0; r < mesh_.ranks(); ++r) numbers.push_back(communicator_rank(r));
  window_.renumber(numbers);
  if (mesh_.nodes == 1) return;
  const ncclComm_t reduce = communicators_->reduce();
  network(Operation::gather).open(window_, gather_, numbers.size(), network_words_);
  network(Operation::reduce).open(window_, reduce, numbers.size(), network_words_ + detail::CudaNetwork::words_bytes);
  if (no_puts_.empty()) {
    const std::vector<int> far = far_ranks();
    network(Operation::gather).allow_puts(window_.window_of(gather_), far);
    network(Operation::reduce).allow_puts(window_.register_on(reduce), far);
  }
}

// The kernel of the first step of a kind among all plans of this rank, and whether there is such a step.
inline std::pair<bool, KernelCode> CudaFabric::find_step(detail::CudaStep::Kind kind) const {
  for (const auto& program : programs_) {
    for (const auto& variant : program->variants) {
      for (const detail::CudaStep& step : variant->steps) {
        if (step.kind != kind) continue;
        const std::size_t kernel = variant->plan.ops[step.first].kernel;
        return {true, kernel < variant->code.size() ? variant->code[kernel] : nullptr};
      }
    }
  }
  return {false, nullptr};
}

// Collective over all ranks: an error on each where one has found a fault; those that have say what it is.
inline void CudaFabric::require_of_all(std::string_view rule, const std::string& fault) {
  if (meet(fault.empty())) return;
  failure_.set(Errc::operation, fault.empty() ? detail::text({rule, "; another rank than ", rank_.value, " says more."})
                                              : detail::text({rule, "; rank ", rank_.value, ": ", fault, "."}));
  failure_.raise_it();
}

// The address is asked for where a plan of some rank needs it, on all ranks or on none, and all know which before any
// of them acts: asking is collective. A rank may have nothing to send while others have.
inline void CudaFabric::agree_on_multicast() {
  const bool is_hardware = options_.multicast == CudaMulticast::hardware;
  const bool asks = is_hardware && (find_step(detail::CudaStep::Kind::multicast).first ||
                                    find_step(detail::CudaStep::Kind::switch_sum).first);
  if (meet(!asks)) return;
  require_of_all("tide::CudaFabric: where a policy asks for multicast, every rank must have its address",
                 is_hardware ? no_multicast_ : "its CudaOptions::multicast is another");
  multicast_trial_ = reserve(detail::MulticastTrial::bytes(mesh_.ranks_per_node), 256);
}

inline void CudaFabric::open_multicast() {
  if (options_.multicast == CudaMulticast::emulated) {
    std::vector<std::byte*> arenas;
    for (index_t k = 1; k <= mesh_.ranks_per_node; ++k) {
      const index_t local = (mesh_.local(rank_) + k) % mesh_.ranks_per_node;
      arenas.push_back(window_.peer(mesh_.rank(mesh_.node(rank_), local).value, rank_.value));
    }
    multicast_.set_emulated(std::move(arenas), mesh_.nodes > 1);
  }
  if (multicast_trial_ < 0) return;
  const auto& [communicator, window] = window_.first();
  // The meeting also makes the address usable: a write before all ranks have bound their memory would miss some.
  require_of_all("tide::CudaFabric: where a policy asks for multicast, every rank must have its address",
                 nccl_multicast_.ask(window, communicator, init_stream_));
  multicast_.set_hardware(nccl_multicast_.address());
}

// Multicast runs on machines that nobody has tried tide on: every shape of write, and a sum, before a plan trusts it.
inline void CudaFabric::try_multicast() {
  if (multicast_trial_ < 0) return;
  detail::MulticastTrial trial(window_.memory(), multicast_trial_, mesh_.local(rank_), mesh_.ranks_per_node,
                               init_stream_);
  trial.prepare();
  static_cast<void>(meet(true));
  trial.write(multicast_);
  poll("a multicast write", [this] { return !detail::is_busy(init_stream_); });
  static_cast<void>(meet(true));
  require_of_all(
      "tide::CudaFabric: what a rank writes to the multicast address must arrive on every rank of its node as it was "
      "sent",
      trial.wrong_write());
  const auto [has_sums, sum] = find_step(detail::CudaStep::Kind::switch_sum);
  require_of_all("tide::CudaFabric: a switch must add what lies on all ranks of a node",
                 has_sums ? trial.wrong_sum(multicast_, reinterpret_cast<detail::CudaKernel>(sum)) : std::string());
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
  require_right_words(mail_.wrong_greeting(init_stream_));
}

// The same of what ranks of other nodes send, with whom NCCL connects here, which blocks the host.
inline void CudaFabric::check_sends() {
  for (const Operation operation : {Operation::gather, Operation::reduce}) {
    std::vector<int> peers;  // the same on both sides
    for (const auto& program : programs_) {
      for (const auto& variant : program->variants) {
        if (variant->collective.operation != operation) continue;
        for (const detail::CudaRendezvous& each : variant->rendezvous) {
          for (const std::int32_t peer : each.peers) peers.push_back(communicator_rank(peer));
        }
      }
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    const auto waits = [this](const detail::CudaQueue::Met& met) { poll("init", met); };
    const int wrong = peers.empty() ? -1 : network(operation).greet(peers, communicator_rank(rank_.value), waits);
    require_right_words(wrong < 0 ? -1 : nodes_.in_mesh(wrong).value);
  }
}

// The same verdict on all ranks.
// @param wrong  the rank whose words did not arrive here as they were sent; -1 for none
inline void CudaFabric::require_right_words(index_t wrong) {
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
