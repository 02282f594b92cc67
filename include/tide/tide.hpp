// SPDX-License-Identifier: Apache-2.0
//
// Everything of tide that needs no GPU: include this. In layer order.
//
// Test: tests/package/

#pragma once

#include <tide/version.hpp>

#include <tide/core/config.hpp>
#include <tide/core/error.hpp>
#include <tide/core/index.hpp>
#include <tide/core/math.hpp>
#include <tide/core/tags.hpp>
#include <tide/core/text.hpp>

#include <tide/element/bf16.hpp>
#include <tide/element/convert.hpp>
#include <tide/element/element.hpp>
#include <tide/element/f16.hpp>
#include <tide/element/f8.hpp>

#include <tide/layout/block.hpp>
#include <tide/layout/coalesce.hpp>
#include <tide/layout/dynamic_layout.hpp>
#include <tide/layout/even_shard.hpp>
#include <tide/layout/fixed_string.hpp>
#include <tide/layout/group.hpp>
#include <tide/layout/layout_rules.hpp>
#include <tide/layout/layout_view.hpp>
#include <tide/layout/mesh.hpp>
#include <tide/layout/name.hpp>
#include <tide/layout/packing.hpp>
#include <tide/layout/parameter.hpp>
#include <tide/layout/piece.hpp>
#include <tide/layout/ragged_shard.hpp>
#include <tide/layout/shard_layout.hpp>
#include <tide/layout/shard_rule.hpp>
#include <tide/layout/tensor_view.hpp>

#include <tide/plan/bound.hpp>
#include <tide/plan/collective.hpp>
#include <tide/plan/estimate.hpp>
#include <tide/plan/fingerprint.hpp>
#include <tide/plan/kernels.hpp>
#include <tide/plan/law.hpp>
#include <tide/plan/machine.hpp>
#include <tide/plan/most_rows.hpp>
#include <tide/plan/op.hpp>
#include <tide/plan/plan.hpp>
#include <tide/plan/plan_builder.hpp>
#include <tide/plan/print.hpp>
#include <tide/plan/rendezvous.hpp>
#include <tide/plan/resource.hpp>
#include <tide/plan/signal_words.hpp>
#include <tide/plan/tally.hpp>
#include <tide/plan/trace.hpp>
#include <tide/plan/traffic.hpp>
#include <tide/plan/verify.hpp>
#include <tide/plan/violation.hpp>
#include <tide/plan/virtual_time.hpp>

#include <tide/transport/multicast_transport.hpp>
#include <tide/transport/rdma_doubling_transport.hpp>
#include <tide/transport/send_recv_doubling_transport.hpp>
#include <tide/transport/transport.hpp>
#include <tide/transport/unicast_transport.hpp>

#include <tide/reduce/auto_transport.hpp>
#include <tide/reduce/copy_engine_reducer.hpp>
#include <tide/reduce/epilogue.hpp>
#include <tide/reduce/inbox.hpp>
#include <tide/reduce/launch.hpp>
#include <tide/reduce/node_exchange.hpp>
#include <tide/reduce/node_tree.hpp>
#include <tide/reduce/reducer.hpp>
#include <tide/reduce/ring.hpp>
#include <tide/reduce/slot_reuse.hpp>
#include <tide/reduce/switch_reducer.hpp>
#include <tide/reduce/tree.hpp>

#include <tide/fabric/duration.hpp>
#include <tide/fabric/fabric.hpp>
#include <tide/fabric/host_cluster.hpp>
#include <tide/fabric/host_fabric.hpp>
#include <tide/fabric/host_options.hpp>
#include <tide/fabric/host_port.hpp>
#include <tide/fabric/host_replicas.hpp>
#include <tide/fabric/host_stream.hpp>
#include <tide/fabric/sim_cluster.hpp>
#include <tide/fabric/sim_fabric.hpp>
#include <tide/fabric/sim_options.hpp>
#include <tide/fabric/sim_replicas.hpp>

#include <tide/memory/gradients.hpp>
#include <tide/memory/shards.hpp>
#include <tide/memory/slot_pool.hpp>

#include <tide/pipeline/all_gather.hpp>
#include <tide/pipeline/all_reduce.hpp>
#include <tide/pipeline/gathered.hpp>
#include <tide/pipeline/own_block.hpp>
#include <tide/pipeline/part.hpp>
#include <tide/pipeline/pass.hpp>
#include <tide/pipeline/reduce_scatter.hpp>
#include <tide/pipeline/replicated.hpp>
#include <tide/pipeline/sharded_step.hpp>
#include <tide/pipeline/step_group.hpp>

#include <tide/models/awkward.hpp>
#include <tide/models/gpt2.hpp>
#include <tide/models/llama3_1.hpp>
#include <tide/models/model.hpp>
#include <tide/models/qwen3_30b_a3b.hpp>
#include <tide/models/registry.hpp>
#include <tide/models/wan2_2.hpp>
