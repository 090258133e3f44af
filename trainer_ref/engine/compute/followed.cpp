#include <bascule/sender/program/sync_flag.h>
#include <bascule/trainer_ref/engine/compute/followed.h>
#include <bascule/transport/libtorch/tensors.h>
#include <bascule/transport/status.h>

namespace bascule::ref {

Served served_by(const Flip& flip, const ReceiverStatus& status, const absl::Status& why_unusable) {
  const bool poisoned = flip.poisoned || status.state == ReceiverState::kPoisoned;
  Served served{.ready = !poisoned && why_unusable.ok(),
                .changed = flip.changed,
                .epoch = flip.epoch,
                .version = flip.version,
                .attached = status.attached,
                .error = why_unusable.ok() ? status.error : why_unusable};
  if (flip.poisoned && served.error.ok())
    served.error = failed_precondition("the weights are poisoned; the receiver has not reported why yet; try again");
  return served;
}

absl::StatusOr<at::Tensor> tensor_of(const Weights& weights, const std::string& name, c10::Device device) {
  const TensorView* view = weights.find(name);
  if (view == nullptr) return invalid_argument("the sender's weights have no tensor ", name);
  if (view->device != kHost && device.is_cpu())
    return invalid_argument("the sender's weights lie on a GPU, where --device=cpu cannot read them; start the engine ",
                            "with --device=cuda:", view->device,
                            ", or both ends with --sync=", plainest_endpoint(ComputesOn::kHost, "/dir"));
  return libtorch::tensor_over(*view);
}

}  // namespace bascule::ref
