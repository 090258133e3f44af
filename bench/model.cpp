#include <bascule/bench/model.h>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::bench {
namespace {

struct Part {
  std::string_view name;
  double share;  // of a layer's elements
};

// Qwen2.5-1.5B: width 1536, 12 heads of 128, 2 of keys and values, 8960 in the middle; 46.8 million elements a layer.
constexpr std::array<Part, 12> kLayer = {{
    {"input_layernorm.weight", 1536 / 46.8e6},
    {"self_attn.q_proj.weight", 1536 * 1536 / 46.8e6},
    {"self_attn.q_proj.bias", 1536 / 46.8e6},
    {"self_attn.k_proj.weight", 256 * 1536 / 46.8e6},
    {"self_attn.k_proj.bias", 256 / 46.8e6},
    {"self_attn.v_proj.weight", 256 * 1536 / 46.8e6},
    {"self_attn.v_proj.bias", 256 / 46.8e6},
    {"self_attn.o_proj.weight", 1536 * 1536 / 46.8e6},
    {"post_attention_layernorm.weight", 1536 / 46.8e6},
    {"mlp.gate_proj.weight", 8960 * 1536 / 46.8e6},
    {"mlp.up_proj.weight", 8960 * 1536 / 46.8e6},
    {"mlp.down_proj.weight", 8960 * 1536 / 46.8e6},
}};
constexpr double kEmbeddingShare = 0.15;

constexpr std::uint64_t kWidth = 64;
constexpr std::uint64_t kPieceElements = 1 << 18;
constexpr std::uint64_t kAlignment = 64;  // of a tensor, as LibTorch allocates

}  // namespace

absl::StatusOr<std::vector<TensorSize>> tensor_sizes(const ModelShape& shape) {
  const std::uint64_t elements = shape.bytes / size_of(shape.dtype);
  if (shape.tensors == 0 || elements < shape.tensors)
    return invalid_argument(shape.bytes, " bytes of ", name_of(shape.dtype), " are ", elements,
                            " elements, too few for ", shape.tensors, " tensors");
  std::vector<TensorSize> sizes;
  double shares = 0;
  std::vector<double> share;
  for (std::uint64_t i = 0; i < shape.tensors; ++i) {
    if (shape.kind == ModelShape::Kind::kEqual || i == 0) {
      sizes.push_back({.name = i == 0 ? "model.embed_tokens.weight" : cat("model.tensor.", i)});
      share.push_back(shape.kind == ModelShape::Kind::kEqual ? 1 : kEmbeddingShare);
    } else {
      const Part& part = kLayer[(i - 1) % kLayer.size()];
      sizes.push_back({.name = cat("model.layers.", (i - 1) / kLayer.size(), ".", part.name)});
      share.push_back(part.share * static_cast<double>(kLayer.size()) / static_cast<double>(shape.tensors));
    }
    shares += share.back();
  }
  // Each tensor gets one element; the other elements are divided by shares, in multiples of 64 for a decoder, like
  // widths. What rounding leaves goes to the first tensor.
  const std::uint64_t rest = elements - shape.tensors;
  std::uint64_t given = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto part = static_cast<std::uint64_t>(static_cast<double>(rest) * (share[i] / shares));
    sizes[i].elements = 1 + std::min(part, rest - given);
    if (shape.kind == ModelShape::Kind::kDecoder && sizes[i].elements > kWidth)
      sizes[i].elements -= sizes[i].elements % kWidth;
    given += sizes[i].elements - 1;
  }
  sizes.front().elements += rest - given;
  return sizes;
}

ModelShape fleet_model(std::uint64_t tensors) {
  constexpr std::uint64_t kBytesOfEach = 64;
  return {.bytes = kBytesOfEach * tensors, .tensors = tensors, .kind = ModelShape::Kind::kEqual};
}

absl::StatusOr<std::vector<TensorSpec>> fleet_specs(std::uint64_t tensors) {
  BASCULE_ASSIGN(const std::vector<TensorSize> sizes, tensor_sizes(fleet_model(tensors)));
  std::vector<TensorSpec> specs;
  specs.reserve(sizes.size());
  for (const TensorSize& size : sizes)
    specs.push_back({size.name, fleet_model(tensors).dtype, {static_cast<std::int64_t>(size.elements)}});
  return specs;
}

absl::StatusOr<Model> Model::make(const ModelShape& shape, std::uint64_t seed, kernels::ThreadPool& pool,
                                  std::shared_ptr<Gpu> gpu) {
  Model model;
  BASCULE_ASSIGN(model.sizes_, tensor_sizes(shape));
  model.shape_ = shape;
  model.shape_.bytes = shape.bytes / size_of(shape.dtype) * size_of(shape.dtype);
  model.seed_ = seed;
  model.pool_ = &pool;
  model.gpu_ = std::move(gpu);
  std::vector<std::uint64_t> offsets;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < model.sizes_.size(); ++i) {
    const std::uint64_t elements = model.sizes_[i].elements;
    offsets.push_back(end);
    end += (elements * size_of(shape.dtype) + kAlignment - 1) / kAlignment * kAlignment;
    for (std::uint64_t begin = 0; begin < elements; begin += kPieceElements)
      model.pieces_.push_back({.tensor = i, .begin = begin, .count = std::min(kPieceElements, elements - begin)});
  }
  if (model.gpu_) {
    BASCULE_ASSIGN(model.memory_, model.gpu_->allocate(end));
  } else {
    void* const memory =
        ::mmap(nullptr, end, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) return errno_status(errno, cat("allocate a model of ", end, " bytes"));
    model.memory_ = {static_cast<std::byte*>(memory), [end](std::byte* at) { ::munmap(at, end); }};
  }
  for (const std::uint64_t offset : offsets) model.tensors_.push_back(model.memory_.get() + offset);
  return model;
}

absl::Status Model::step(std::uint64_t generation) {
  const Content content(seed_, generation);
  if (gpu_) {
    for (std::size_t i = 0; i < sizes_.size(); ++i)
      BASCULE_TRY(gpu_->write(content.elements(sizes_[i].name, sizes_[i].elements, shape_.dtype, shape_.dtype),
                              static_cast<std::byte*>(tensors_[i])));
    return gpu_->wait();
  }
  pool_->run(pieces_.size(), [&](std::size_t i) {
    const Piece& piece = pieces_[i];
    content.write(sizes_[piece.tensor].name, shape_.dtype, piece.begin, piece.count,
                  static_cast<std::byte*>(tensors_[piece.tensor]) + piece.begin * size_of(shape_.dtype));
  });
  return absl::OkStatus();
}

std::unique_ptr<TensorSource> Model::source() {
  std::vector<std::pair<TensorSpec, void**>> tensors;
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    tensors.emplace_back(TensorSpec{sizes_[i].name, shape_.dtype, {static_cast<std::int64_t>(sizes_[i].elements)}},
                         &tensors_[i]);
  if (gpu_) return gpu_->source(std::move(tensors), moved_);
  return std::make_unique<HostParameters>(std::move(tensors), moved_);
}

std::vector<ShardedTensor> Model::shards(std::size_t rank, std::size_t ranks) const {
  std::vector<ShardedTensor> tensors;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    const std::uint64_t begin = sizes_[i].elements * rank / ranks, end = sizes_[i].elements * (rank + 1) / ranks;
    tensors.push_back(
        {.spec = {sizes_[i].name, shape_.dtype, {static_cast<std::int64_t>(sizes_[i].elements)}},
         .shards = {{.offset = {static_cast<std::int64_t>(begin)},
                     .shape = {static_cast<std::int64_t>(end - begin)},
                     .data = static_cast<const std::byte*>(tensors_[i]) + begin * size_of(shape_.dtype)}}});
  }
  return tensors;
}

}  // namespace bascule::bench
