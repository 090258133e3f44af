// What an engine computes with, bound to the slots of a receiver as versions come: a Decoder, or an Adapter.
//
// For the engine's thread only. `Bound` is bound once per slot; a flip to a live slot costs a look-up. When a slot is
// gone, what was bound to it is released, so code that keeps something beside it must hold only a weak_ptr to it.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Device.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <bascule/receiver/receiver.h>
#include <bascule/trainer_ref/engine/compute/torch_error.h>
#include <bascule/trainer_ref/engine/schedule/runner.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

// Returns what a commit serves. `why_unusable` is the error, if any, that the engine had when it bound the flip's
// weights. A flip may be poisoned before the status reports it.
Served served_by(const Flip& flip, const ReceiverStatus& status, const absl::Status& why_unusable);

// A tensor of a slot, without a copy. INVALID_ARGUMENT if there is none, or if `device` cannot read it.
absl::StatusOr<at::Tensor> tensor_of(const Weights& weights, const std::string& name, c10::Device device);

// Calls `make`. LibTorch throws if memory runs out or the device has failed; on the engine's thread that would end the
// process, and every request with it.
template <typename Make>
auto without_exceptions(const Make& make, std::string_view what, c10::Device device) -> decltype(make()) {
  try {
    return make();
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(cat(what, " on ", device.str(), ": ", text_of(error)));
  }
}

template <typename Bound>
class Followed {
 public:
  // Binds to the tensors of one slot, which came with `description`.
  using Bind = std::function<absl::StatusOr<Bound>(const Weights& weights, const std::string& description)>;
  // `what` begins errors, as "the sender's weights".
  Followed(Receiver receiver, Bind bind, std::string what, c10::Device device)
      : receiver_(std::move(receiver)), bind_(std::move(bind)), what_(std::move(what)), device_(device) {}

  // Like Runner::commit() and look().
  Served commit() {
    flip_ = receiver_.commit();
    if (flip_.changed) failure_ = use(flip_.slot);
    return judge();
  }
  Served look() const {
    Served served = judge();
    served.changed = false;
    served.pending = receiver_.pending();
    return served;
  }
  bool pending() const { return receiver_.pending(); }
  const std::shared_ptr<const Bound>& current() const { return current_; }  // set once commit() was ready

 private:
  Served judge() const {
    Served served = served_by(flip_, receiver_.status(), failure_);
    served.ready = served.ready && current_ != nullptr;
    return served;
  }
  absl::Status use(SlotId slot) {
    current_ = nullptr;
    std::erase_if(bound_, [this](const auto& one) { return receiver_.weights(one.first).tensors().empty(); });
    std::shared_ptr<const Bound>& bound = bound_[slot];
    if (bound == nullptr) {
      const auto bind = [&] { return bind_(receiver_.weights(slot), receiver_.description()); };
      BASCULE_ASSIGN(Bound made, without_exceptions(bind, what_, device_));
      bound = std::make_shared<const Bound>(std::move(made));
    }
    current_ = bound;
    return absl::OkStatus();
  }

  Receiver receiver_;
  Bind bind_;
  std::string what_;
  c10::Device device_;
  std::map<SlotId, std::shared_ptr<const Bound>> bound_;
  std::shared_ptr<const Bound> current_;
  Flip flip_;  // the result of the last commit
  absl::Status failure_;
};

}  // namespace bascule::ref
