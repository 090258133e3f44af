#include <bascule/transport/layout.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include <bascule/kernels/pack.h>
#include <bascule/kernels/thread_pool.h>
#include <bascule/transport/name_order.h>
#include <bascule/transport/placing_rank.h>
#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {
namespace {

// The tensor's size in bytes, or an error that names it.
absl::StatusOr<std::uint64_t> checked_bytes(const TensorSpec& spec) {
  BASCULE_TRY(check_tensor_name(spec.name));
  if (spec.dtype == DType::kF4X2 && spec.shape.empty())
    return invalid_argument("tensor ", to_string(spec), " has no dimension; pairs of 4-bit numbers need one");
  return checked_byte_count(spec.name, spec.dtype, spec.shape);
}

absl::Status check_description(std::string_view description) {
  if (description.size() > kMostDescriptionBytes)
    return invalid_argument("the description has ", description.size(), " bytes, expected ", kMostDescriptionBytes,
                            " at most");
  return is_utf8(description) ? absl::OkStatus() : invalid_argument("the description is not UTF-8");
}

void append_text(const Division& division, std::string& text) {
  absl::StrAppend(&text, "regions ", division.regions, " ", division.granule, "\n");
  const auto append = [&](const auto& numbers) {
    for (const auto number : numbers) absl::StrAppend(&text, number, " ");
    absl::StrAppend(&text, "\n");
  };
  for (const Cut& cut : division.cuts) {
    append(cut.pieces);
    append(cut.regions);
    append(cut.bounds);
  }
  append(division.cut_of);
}

Digest fingerprint_of(const Layout& layout) {
  // A plain text with everything about the layout, one tensor per line; names may hold any character, so each comes
  // with its length. A description comes last, with its length.
  std::string text = cat("bascule layout 1\n", layout.bytes(), "\n");
  for (const Placement& tensor : layout.tensors()) {
    absl::StrAppend(&text, tensor.spec.name.size(), " ");
    append_text(tensor.spec, text);
    absl::StrAppend(&text, " ", tensor.offset, "\n");
  }
  for (const Alias& alias : layout.aliases())
    absl::StrAppend(&text, alias.name.size(), " ", alias.name, " ", alias.tensor, "\n");
  if (const std::optional<Division>& division = layout.division()) append_text(*division, text);
  if (const std::string& description = layout.description(); !description.empty())
    absl::StrAppend(&text, "description ", description.size(), "\n", description);
  kernels::ThreadPool one(1);
  return kernels::digest(std::as_bytes(std::span(text)), one);
}

}  // namespace

absl::Status Layout::add_tensors(std::vector<TensorSpec> specs) {
  tensors_.reserve(specs.size());
  for (TensorSpec& spec : specs) {
    BASCULE_ASSIGN(const std::uint64_t bytes, checked_bytes(spec));
    tensors_.push_back({.spec = std::move(spec), .offset = 0, .bytes = bytes});
  }
  return absl::OkStatus();
}

absl::Status Layout::add_aliases(std::vector<std::pair<std::string, std::string>> tied) {
  if (tied.empty()) return absl::OkStatus();
  std::unordered_map<std::string_view, std::uint32_t> position;
  for (std::uint32_t i = 0; i < tensors_.size(); ++i) position.emplace(tensors_[i].spec.name, i);
  for (std::pair<std::string, std::string>& tie : tied) {  // (clang-tidy 14 sees no move out of a structured binding)
    BASCULE_TRY(check_tensor_name(tie.first));
    const auto found = position.find(tie.second);
    if (found == position.end())
      return invalid_argument("alias ", tie.first, " stands for ", tie.second, ", which is not sent");
    aliases_.push_back({.name = std::move(tie.first), .tensor = found->second});
  }
  return absl::OkStatus();
}

absl::StatusOr<Layout> Layout::arrange(std::vector<TensorSpec> specs,
                                       std::vector<std::pair<std::string, std::string>> tied,
                                       std::span<const std::vector<std::string>> fused, std::string description) {
  Layout layout;
  BASCULE_TRY(check_description(description));
  layout.description_ = std::move(description);
  BASCULE_TRY(layout.add_tensors(std::move(specs)));
  const auto first = [](const Placement& a, const Placement& b) {
    return placing_rank(a.bytes, a.spec.dtype) > placing_rank(b.bytes, b.spec.dtype);
  };
  // Most models need no other order, and a sort would move all of them nevertheless.
  if (!std::ranges::is_sorted(layout.tensors_, first)) std::ranges::stable_sort(layout.tensors_, first);
  BASCULE_TRY(layout.place());
  BASCULE_TRY(layout.add_aliases(std::move(tied)));
  BASCULE_TRY(layout.index());
  if (!fused.empty()) BASCULE_TRY(layout.fuse(fused));
  return layout;
}

absl::StatusOr<Layout> Layout::divide(std::vector<TensorSpec> specs,
                                      std::vector<std::pair<std::string, std::string>> tied, Division division,
                                      std::string description) {
  Layout layout;
  BASCULE_TRY(check_description(description));
  layout.description_ = std::move(description);
  layout.division_ = std::move(division);
  BASCULE_TRY(layout.add_tensors(std::move(specs)));
  BASCULE_TRY(layout.place_boxes());
  BASCULE_TRY(layout.add_aliases(std::move(tied)));
  BASCULE_TRY(layout.index());
  return layout;
}

absl::Status Layout::place() {
  bytes_ = 0;
  for (Placement& tensor : tensors_) {
    tensor.offset = bytes_;
    if (bytes_ > kMostModelBytes - tensor.bytes) return invalid_argument("the model is larger than 2^62 bytes");
    bytes_ += tensor.bytes;
  }
  return absl::OkStatus();
}

absl::Status Layout::check_contiguous() const {
  std::uint64_t end = 0;  // of the tensors so far
  for (const Placement& tensor : tensors_) {
    if (tensor.offset % size_of(tensor.spec.dtype) != 0 || tensor.offset > bytes_ ||
        tensor.bytes > bytes_ - tensor.offset)
      return invalid_argument("tensor ", to_string(tensor.spec), " at ", tensor.offset,
                              " is not aligned to its element, or ends beyond the slot's ", bytes_, " bytes");
    if (tensor.offset != end)
      return invalid_argument("tensor ", to_string(tensor.spec), " lies at ", tensor.offset, ", expected ", end,
                              ", where the one before it ends");
    end += tensor.bytes;
  }
  if (end != bytes_) return invalid_argument("the tensors end at ", end, ", expected the slot's ", bytes_, " bytes");
  return absl::OkStatus();
}

absl::StatusOr<Layout> Layout::from_placements(std::vector<Placement> tensors, std::vector<Alias> aliases,
                                               std::uint64_t bytes, std::string description,
                                               std::optional<Division> division) {
  Layout layout;
  const auto check = [&]() -> absl::Status {
    BASCULE_TRY(check_description(description));
    for (const Placement& tensor : tensors) {
      BASCULE_ASSIGN(const std::uint64_t expected, checked_bytes(tensor.spec));
      if (tensor.bytes != expected)
        return invalid_argument("tensor ", to_string(tensor.spec), " has ", tensor.bytes, " bytes, expected ",
                                expected);
    }
    layout.description_ = std::move(description);
    layout.tensors_ = std::move(tensors);
    layout.aliases_ = std::move(aliases);
    layout.bytes_ = bytes;
    layout.division_ = std::move(division);
    if (layout.division_) {
      BASCULE_TRY(layout.place_boxes());  // at both ends by the same rule; what the other end says is not needed
    } else {
      BASCULE_TRY(layout.check_contiguous());
    }
    if (layout.bytes_ != bytes)
      return invalid_argument("the regions end at ", layout.bytes_, ", expected the slot's ", bytes, " bytes");
    for (const Alias& alias : layout.aliases_) {
      if (alias.tensor >= layout.tensors_.size())
        return invalid_argument("alias ", alias.name, " stands for no tensor");
      BASCULE_TRY(check_tensor_name(alias.name));
    }
    return absl::OkStatus();
  };
  absl::Status taken = annotate(check(), "layout");
  if (taken.ok()) taken = layout.index();
  if (!taken.ok()) return absl::Status(taken.code(), one_line(message_of(taken)));  // another end chose the names
  return layout;
}

std::string_view Layout::name(std::uint32_t i) const {
  return i < tensors_.size() ? tensors_[i].spec.name : aliases_[i - tensors_.size()].name;
}

// Names begin alike, and most differ within the next 8 bytes, so that sorting seldom looks at the names themselves.
void Layout::sort_names() {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size() + aliases_.size());
  for (std::uint32_t i = 0; i < tensors_.size() + aliases_.size(); ++i) names.push_back(name(i));
  by_name_ = name_order(names);
}

absl::Status Layout::index() {
  sort_names();
  for (std::size_t i = 1; i < by_name_.size(); ++i)
    if (name(by_name_[i]) == name(by_name_[i - 1]))
      return invalid_argument("tensor ", name(by_name_[i]), " stands twice; names must be unique");
  fingerprint_ = fingerprint_of(*this);
  return absl::OkStatus();
}

const Placement& Layout::placed(std::uint32_t i) const {
  return tensors_[i < tensors_.size() ? i : aliases_[i - tensors_.size()].tensor];
}

std::optional<std::uint32_t> Layout::number_of(std::string_view wanted, std::uint32_t guess) const {
  if (guess < by_name_.size() && name(guess) == wanted) return guess;
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), wanted,
                                      [this](std::uint32_t i, std::string_view text) { return name(i) < text; });
  if (found == by_name_.end() || name(*found) != wanted) return std::nullopt;
  return *found;
}

const Placement* Layout::find(std::string_view wanted) const {
  const std::optional<std::uint32_t> number = number_of(wanted, 0);
  return number ? &placed(*number) : nullptr;
}

absl::Status Layout::check_expected(std::span<const TensorSpec> expected, bool casts) const {
  std::string first;  // difference; a list of a million must not take long
  std::size_t differences = 0;
  const auto differ = [&](const auto& text) {
    if (differences++ == 0) first = text();
  };
  std::vector<bool> named(by_name_.size(), false), covered(tensors_.size(), false);
  std::set<std::string_view> not_sent;
  std::uint32_t next = 0;  // both usually have the same order
  for (const TensorSpec& spec : expected) {
    const std::optional<std::uint32_t> number = number_of(spec.name, next);
    if (number ? named[*number] : not_sent.contains(spec.name)) {
      differ([&] { return cat("tensor ", spec.name, " is expected twice"); });
      continue;
    }
    if (!number) {
      not_sent.insert(spec.name);
      differ([&] { return cat("tensor ", to_string(spec), " is expected, but not sent"); });
      continue;
    }
    named[*number] = true;
    next = *number + 1;
    const Placement* const sent = &placed(*number);
    covered[static_cast<std::size_t>(sent - tensors_.data())] = true;
    const bool fits = casts ? kernels::can_cast(sent->spec.dtype, spec.dtype) : sent->spec.dtype == spec.dtype;
    if (!fits || sent->spec.shape != spec.shape)
      differ([&] {
        return cat("tensor ", spec.name, " is sent as ",
                   to_string(TensorSpec{spec.name, sent->spec.dtype, sent->spec.shape}).substr(spec.name.size() + 1),
                   ", expected ", to_string(spec).substr(spec.name.size() + 1));
      });
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!covered[i]) differ([&] { return cat("tensor ", to_string(tensors_[i].spec), " is sent, but not expected"); });
  if (differences == 0) return absl::OkStatus();
  const std::size_t more = differences - 1;
  return invalid_argument(first, more == 0 ? "" : cat("; and ", more, " more difference", more == 1 ? "" : "s"),
                          "; the worker's model must be the trainer's");
}

}  // namespace bascule::inline v0
