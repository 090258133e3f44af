#include "receiver/attachment.h"

#include <algorithm>
#include <utility>

#include "transport/text.h"

namespace bascule {

std::unique_ptr<const Weights> WeightsBuilder::build(const Layout& layout, std::span<const std::byte> slot) {
  auto weights = std::make_unique<Weights>();
  const auto add = [&](std::string_view name, const Placement& tensor) {
    weights->tensors_.push_back({.name = name,
                                 .dtype = tensor.spec.dtype,
                                 .shape = tensor.spec.shape,
                                 .strides = {},
                                 .data = slot.data() + tensor.offset});
  };
  for (const Placement& tensor : layout.tensors()) add(tensor.spec.name, tensor);
  for (const Alias& alias : layout.aliases()) add(alias.name, layout.tensors()[alias.tensor]);
  std::ranges::sort(weights->tensors_, {}, &TensorView::name);
  return weights;
}

const TensorView* Weights::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &TensorView::name);
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

absl::StatusOr<std::shared_ptr<Attachment>> Attachment::make(const Scheme& scheme, Welcome welcome,
                                                             std::vector<UniqueFd> descriptors) {
  if (descriptors.empty()) return invalid_argument("the welcome came without a control page");
  auto made = std::make_shared<Attachment>();
  made->epoch_ = welcome.epoch;
  made->digest_ = welcome.digest;
  made->layout_ = std::move(welcome.layout);
  BASCULE_ASSIGN(made->control_page_, ControlPageView::map(std::move(descriptors.back()), welcome.epoch));
  descriptors.pop_back();
  ReceivedOffer offer{.bytes = std::move(welcome.offer),
                      .descriptors = std::move(descriptors),
                      .slots = {},
                      .slot_bytes = made->layout_.bytes()};
  for (const std::uint32_t index : welcome.slots) offer.slots.push_back({welcome.epoch, index});
  made->transport_ = scheme.make_receiver();
  BASCULE_TRY(made->transport_->accept(std::move(offer)));
  return made;
}

absl::StatusOr<Attachment::Ready> Attachment::prepare(const Publication& publication, Deadline deadline) {
  if (publication.bytes != layout_.bytes())
    return invalid_argument("version ", publication.version, " has ", publication.bytes, " bytes, expected ",
                            layout_.bytes());
  BASCULE_ASSIGN(const SlotView view, transport_->prepare(publication, deadline));
  if (view.bytes.size() < layout_.bytes())
    return invalid_argument("slot ", publication.slot.index, " has ", view.bytes.size(), " bytes, expected ",
                            layout_.bytes());
  std::unique_ptr<const Weights>& weights = weights_[publication.slot];
  if (!weights) weights = WeightsBuilder::build(layout_, view.bytes);
  return Ready{.view = {.slot = view.slot, .bytes = view.bytes.first(layout_.bytes())}, .weights = weights.get()};
}

}  // namespace bascule
