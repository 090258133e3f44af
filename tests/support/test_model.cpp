#include "support/test_model.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "support/devices/device_bytes.h"
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

constexpr std::string_view kGeneration = "generation";  // U64 []: the number itself
constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
constexpr std::string_view kHead = "lm_head.weight";                      // tied to the embedding
constexpr std::string_view kTransposed = "model.layers.0.o_proj.weight";  // stored with its dimensions swapped

std::vector<TensorSpec> specs_of(ModelSize size) {
  const std::int64_t width = size == ModelSize::kTiny ? 4 : size == ModelSize::kSmall ? 48 : 256;
  const std::int64_t layers = size == ModelSize::kTiny ? 1 : size == ModelSize::kSmall ? 3 : 6;
  std::vector<TensorSpec> specs = {
      {std::string(kGeneration), DType::kU64, {}},
      {std::string(kEmbedding), DType::kBF16, {10 * width + 7, width}},
  };
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::string prefix = cat("model.layers.", layer, ".");
    specs.push_back({prefix + "input_layernorm.weight", DType::kF32, {width}});
    specs.push_back({prefix + "o_proj.weight", DType::kF32, {width, 2 * width + 1}});
    specs.push_back({prefix + "mlp.weight", DType::kF16, {3 * width, width}});
  }
  for (const DTypeTraits& dtype : kDTypes)
    specs.push_back({cat("every.", dtype.name), *dtype_named(dtype.name), {3, 5, 7}});
  specs.push_back({"scale", DType::kF32, {}});
  specs.push_back({"empty", DType::kF32, {0, width}});
  specs.push_back({"größe.重み.βάρος", DType::kBF16, {width + 1}});
  specs.push_back({std::string(kHead), DType::kBF16, {10 * width + 7, width}});
  return specs;
}

// splitmix64: neighbouring seeds give unrelated numbers.
constexpr std::uint64_t mixed(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

// The bytes of one tensor in one generation, eight at a time.
class Content {
 public:
  Content(const TensorView& tensor, std::uint64_t generation)
      : generation_(tensor.name == kGeneration ? generation : 0), is_bool_(tensor.dtype == DType::kBool) {
    std::uint64_t seed = generation;
    for (const char c : tensor.name == kHead ? kEmbedding : tensor.name)
      seed = mixed(seed ^ static_cast<unsigned char>(c));
    seed_ = seed;
  }
  std::uint64_t word(std::uint64_t index) const {
    if (generation_ != 0) return generation_;
    const std::uint64_t random = mixed(seed_ + index);
    constexpr std::uint64_t kOnes = 0x0101010101010101;
    return is_bool_ ? random & kOnes : random | kOnes;  // no byte is zero, except false
  }
  void write(std::span<std::byte> bytes) const {
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
      const std::uint64_t next = word(at / 8);
      std::memcpy(bytes.data() + at, &next, std::min<std::size_t>(8, bytes.size() - at));
    }
  }
  // The first byte that differs; bytes.size() if none does.
  std::size_t mismatch(std::span<const std::byte> bytes) const {
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
      const std::uint64_t next = word(at / 8);
      const std::size_t width = std::min<std::size_t>(8, bytes.size() - at);
      if (std::memcmp(bytes.data() + at, &next, width) == 0) continue;
      const auto* expected = reinterpret_cast<const std::byte*>(&next);
      return at +
             static_cast<std::size_t>(std::mismatch(expected, expected + width, bytes.data() + at).first - expected);
    }
    return bytes.size();
  }

 private:
  std::uint64_t seed_ = 0, generation_ = 0;
  bool is_bool_ = false;
};

std::size_t size_of_tensor(const TensorView& tensor) { return byte_count(tensor.dtype, tensor.shape); }

// Describes the first wrong byte, to help find its origin.
std::string what_it_is(const TensorView& tensor, std::size_t at, std::uint64_t generation) {
  if (tensor.data[at] == std::byte{0}) return "zero: memory that was never written";
  const std::size_t word = at / 8 * 8, width = std::min<std::size_t>(8, size_of_tensor(tensor) - word);
  for (std::uint64_t other = generation > 50 ? generation - 50 : 1; other < generation + 50; ++other) {
    const std::uint64_t expected = Content(tensor, other).word(word / 8);
    if (std::memcmp(&expected, tensor.data + word, width) == 0) return cat("of generation ", other);
  }
  return "of no generation near it";
}

}  // namespace

class TestModelSource final : public TensorSource {
 public:
  explicit TestModelSource(TestModel& model) : model_(model) {}
  absl::StatusOr<std::span<const TensorView>> views() override { return std::span<const TensorView>(model_.views_); }
  absl::Status move_into(std::span<std::byte* const> targets, std::shared_ptr<void> keeps) override {
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (model_.storage_[i].empty()) continue;  // tied, or without elements
      if (model_.device_ != kHost) {
        model_.places_[i] = targets[i];
        continue;
      }
      std::memcpy(targets[i], model_.storage_[i].data(), model_.storage_[i].size());
      model_.storage_[i] = {targets[i], model_.storage_[i].size()};
    }
    model_.keeps_ = std::move(keeps);
    model_.on_device_.clear();
    model_.make_views();
    model_.upload_all();
    return absl::OkStatus();
  }

 private:
  TestModel& model_;
};

TestModel::TestModel(ModelSize size) : specs_(specs_of(size)) {
  for (const TensorSpec& spec : specs_) own_.emplace_back(spec.name == kHead ? 0 : byte_count(spec.dtype, spec.shape));
  storage_.assign(own_.begin(), own_.end());
  make_views();
}

void TestModel::make_views() {
  views_.clear();
  for (std::size_t i = 0; i < specs_.size(); ++i)
    views_.push_back({.name = specs_[i].name,
                      .dtype = specs_[i].dtype,
                      .shape = specs_[i].shape,
                      .strides = {},
                      .data = device_ == kHost ? storage_[i].data() : places_[i],
                      .device = device_});
  const auto view_of = [this](std::string_view name) -> TensorView& {
    return *std::ranges::find(views_, name, &TensorView::name);
  };
  view_of(kHead).data = view_of(kEmbedding).data;
  if (keeps_) return;  // a slot's tensors are contiguous
  TensorView& transposed = view_of(kTransposed);
  transposed_strides_ = {1, transposed.shape[0]};
  transposed.strides = transposed_strides_;
}

void TestModel::step(std::uint64_t generation) {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const TensorView& view = views_[i];
    const Content content(view, generation);
    if (view.strides.empty()) {
      content.write(storage_[i]);
      continue;
    }
    // Writes the elements in row order first, then moves them to the places that its strides give.
    std::vector<std::byte> rows(storage_[i].size());
    content.write(rows);
    const std::size_t width = size_of(view.dtype);
    const auto height = static_cast<std::size_t>(view.shape[0]), columns = static_cast<std::size_t>(view.shape[1]);
    for (std::size_t row = 0; row < height; ++row)
      for (std::size_t column = 0; column < columns; ++column)
        std::memcpy(storage_[i].data() + (column * height + row) * width,
                    rows.data() + (row * columns + column) * width, width);
  }
  upload_all();
}

void TestModel::place_on(int device) {
  device_ = device;
  if (device == kHost) return;
  allocate_on_device();
  make_views();
  upload_all();
}

void TestModel::allocate_on_device() {
  on_device_.clear();
  places_.clear();
  for (const std::span<std::byte> storage : storage_) {
    on_device_.push_back(device_bytes(device_, storage.size()));
    places_.push_back(on_device_.back().get());
  }
}

void TestModel::upload_all() {
  if (device_ == kHost) return;
  for (std::size_t i = 0; i < storage_.size(); ++i) upload(places_[i], storage_[i], device_);
}

void TestModel::move_storage() {
  std::vector<std::vector<std::byte>> moved = own_;  // the old addresses are in use until it is made
  own_.swap(moved);
  storage_.assign(own_.begin(), own_.end());
  if (device_ != kHost) {
    const std::vector<std::shared_ptr<std::byte>> before = on_device_;  // held, so that all addresses change
    allocate_on_device();
  }
  make_views();
  upload_all();
}

std::unique_ptr<TensorSource> TestModel::source() { return std::make_unique<TestModelSource>(*this); }

void write_generation(std::span<const MutableTensorView> tensors, std::uint64_t generation) {
  for (const MutableTensorView& tensor : tensors) {
    const TensorView view{
        .name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .strides = {}, .data = tensor.data};
    std::vector<std::byte> bytes(size_of_tensor(view));
    Content(view, generation).write(bytes);
    if (tensor.device != kHost) {
      upload(tensor.data, bytes, tensor.device);
    } else if (!bytes.empty()) {
      std::memcpy(tensor.data, bytes.data(), bytes.size());
    }
  }
}

absl::StatusOr<std::uint64_t> generation_of(std::span<const TensorView> tensors, ModelSize size) {
  if (!tensors.empty() && tensors.front().device != kHost) {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<TensorView> copies(tensors.begin(), tensors.end());
    for (TensorView& tensor : copies) {
      bytes.push_back(test::bytes_of(tensor));
      tensor.data = bytes.back().data();
      tensor.device = kHost;
    }
    return generation_of(copies, size);
  }
  std::vector<TensorSpec> specs = specs_of(size);
  std::ranges::sort(specs, {}, &TensorSpec::name);
  if (tensors.size() != specs.size())
    return invalid_argument("expected ", specs.size(), " tensors, found ", tensors.size());
  std::uint64_t generation = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const TensorView& tensor = tensors[i];
    const TensorSpec found{std::string(tensor.name), tensor.dtype, {tensor.shape.begin(), tensor.shape.end()}};
    if (found != specs[i])
      return invalid_argument("expected tensor ", to_string(specs[i]), ", found ", to_string(found));
    if (reinterpret_cast<std::uintptr_t>(tensor.data) % size_of(tensor.dtype) != 0)
      return invalid_argument("tensor ", tensor.name, " is not aligned to its element");
    if (tensor.name == kGeneration) std::memcpy(&generation, tensor.data, sizeof(generation));
  }
  if (generation == 0) return absl::DataLossError("the generation is zero: memory that was never written");
  for (const TensorView& tensor : tensors) {
    const std::span<const std::byte> bytes(tensor.data, size_of_tensor(tensor));
    const std::size_t at = Content(tensor, generation).mismatch(bytes);
    if (at < bytes.size())
      return absl::DataLossError(cat("torn: the model says generation ", generation, ", byte ", at, " of ", tensor.name,
                                     " is ", what_it_is(tensor, at, generation)));
  }
  return generation;
}

}  // namespace bascule::test
