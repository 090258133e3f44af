#include <bascule/trainer_ref/grpo/merge.h>

#include <array>
#include <string>

#include <bascule/kernels/pack.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/trainer_ref/grpo/run/run_folder.h>
#include <bascule/trainer_ref/model/adapter_folder.h>
#include <bascule/trainer_ref/model/checkpoint.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/program/checks.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

at::Tensor merged_weight(const at::Tensor& weight, const LowRank& factors, DType dtype) {
  const at::Tensor w = weight.detach().contiguous(), b = factors.b.detach().contiguous(),
                   a = factors.a.detach().contiguous();
  const std::int64_t columns = w.size(1), rank = a.size(0);
  const at::Tensor merged = at::empty(w.sizes(), libtorch::scalar_type_of(dtype));
  kernels::Segment segment{.tensor = 0,
                           .tensor_dtype = DType::kF32,
                           .slot_dtype = dtype,
                           .arithmetic = 0,
                           .elements = static_cast<std::uint64_t>(w.numel())};
  segment.shape[0] = w.numel();
  segment.tensor_strides[0] = segment.slot_strides[0] = 1;
  const kernels::Arithmetic product{
      .scale = static_cast<float>(factors.scale),
      .rank = static_cast<std::uint32_t>(rank),
      .columns = static_cast<std::uint64_t>(columns),
      .left = {.tensor = 1, .dtype = DType::kF32, .row_stride = rank, .column_stride = 1},
      .right = {.tensor = 2, .dtype = DType::kF32, .row_stride = columns, .column_stride = 1}};
  const auto address = [](const at::Tensor& tensor) { return static_cast<const std::byte*>(tensor.const_data_ptr()); };
  const std::array addresses{address(w), address(b), address(a)};
  kernels::ThreadPool pool(0);
  kernels::pack({&segment, 1}, addresses, {static_cast<std::byte*>(merged.mutable_data_ptr()), merged.nbytes()},
                /*want_digest=*/false, pool, nullptr, {&product, 1});
  return merged;
}

absl::Status merge_adapter(const std::filesystem::path& adapter_folder, const std::filesystem::path& model,
                           const std::filesystem::path& out, DType dtype) {
  BASCULE_ASSIGN(const RunFolder folder, RunFolder::take_new(out));
  absl::StatusOr<ModelConfig> config = read_config(model);
  BASCULE_TRY(of_flag(config.status(), "model", model.string(), kModelAdvice));
  absl::StatusOr<Adapter> adapter = read_adapter(adapter_folder, *config);
  BASCULE_TRY(of_flag(adapter.status(), "merge", adapter_folder.string(), "give an adapter of --model"));
  absl::StatusOr<WeightMap> weights = read_weights(model, *config, DType::kF32);
  BASCULE_TRY(of_flag(weights.status(), "model", model.string(), kModelAdvice));
  for (const auto& [name, factors] : adapter->modules) {
    if (factors.a.size(0) > kernels::kMaxProductRank)
      return unimplemented("--merge=", adapter_folder.string(), ": ", name, " has the rank ", factors.a.size(0),
                           "; expected at most ", kernels::kMaxProductRank);
    at::Tensor& weight = weights->at(name + ".weight");
    weight = merged_weight(weight, factors, dtype);
  }
  return write_checkpoint(out, model, *weights, dtype);
}

}  // namespace bascule::ref
