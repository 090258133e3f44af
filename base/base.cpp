#include <bascule/base/base.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <bascule/base/keeper.h>
#include <bascule/base/turns.h>
#include <bascule/receiver/receiver.h>
#include <bascule/schemes/registry.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/caught.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

std::vector<TensorView> views_of(const HeldVersion& held) {
  std::vector<TensorView> views;
  const auto add = [&](const std::string& name, const Placement& tensor) {
    views.push_back({.name = name,
                     .dtype = tensor.spec.dtype,
                     .shape = tensor.spec.shape,
                     .strides = {},
                     .data = held.bytes.data() + tensor.offset,
                     .device = held.device});
  };
  for (const Placement& tensor : held.layout.tensors()) add(tensor.spec.name, tensor);
  for (const Alias& alias : held.layout.aliases()) add(alias.name, held.layout.tensors()[alias.tensor]);
  std::ranges::sort(views, {}, &TensorView::name);
  return views;
}

absl::Status check_held(const HeldVersion& held, const BaseOptions& options) {
  if (options.digest && held.digest != options.digest)
    return failed_precondition(
        "the base at ", options.endpoint, " has the digest ", held.digest ? to_hex(*held.digest) : "none",
        ", expected ", to_hex(*options.digest),
        ": it holds other weights; end the processes that have it open, or give another endpoint");
  if (held.device != options.device)
    return failed_precondition("the base at ", options.endpoint, " lies in ", place_name(held.device), ", expected ",
                               place_name(options.device), "; open it there, or give another endpoint");
  return absl::OkStatus();
}

}  // namespace

struct Base::Impl {
  Turns turns;
  HeldVersion held;
  std::vector<TensorView> tensors;
  bool made_here;
  BaseKeeper keeper;

  Impl(BaseOptions options, Turns taken, HeldVersion version, std::optional<Sender> sender,
       std::optional<Receiver> receiver)
      : turns(std::move(taken)),
        held(std::move(version)),
        tensors(views_of(held)),
        made_here(sender.has_value()),
        keeper(std::move(options), held, std::move(sender), std::move(receiver)) {}
};

namespace {

// Opens the base. A turn is short, unless this process makes it: what other processes do meanwhile may decide the next.
class Opening {
 public:
  Opening(BaseOptions& options, Turns& turns) : options_(options), turns_(turns), deadline_(options.timeout) {}

  absl::Status run() {
    while (true) {
      const Deadline turn(std::min(deadline_.at(), Deadline(absl::Seconds(1)).at()));
      absl::Status begun = turns_.begin(turn, options_.interrupted);
      if (begun.ok()) {
        const absl::StatusOr<bool> opened = open();
        turns_.end();
        if (!opened.ok() || *opened) return opened.status();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // others get their turn
      } else if (!absl::IsDeadlineExceeded(begun)) {
        return begun;
      } else if (why_.empty()) {
        why_ = "another process is opening it, and may be reading the weights";
      }
      if (options_.interrupted && options_.interrupted())
        return absl::CancelledError("interrupted while the base is opened");
      if (deadline_.passed())
        return deadline_exceeded("the base at ", options_.endpoint, " was not opened within ",
                                 absl::FormatDuration(options_.timeout), ": ", why_);
      tell();
    }
  }

  HeldVersion held;
  std::optional<Sender> sender;
  std::optional<Receiver> receiver;

 private:
  // False: not yet, and why_ says why.
  absl::StatusOr<bool> open() {
    BASCULE_ASSIGN(const bool first, turns_.is_first());
    if (first && !options_.fill) {
      why_ = "no process made it; start one that does";
      return false;
    }
    BASCULE_ASSIGN(const bool opened, first ? make() : join());
    if (!opened) return false;
    BASCULE_TRY(turns_.keep());
    return true;
  }

  absl::StatusOr<bool> make() {
    absl::StatusOr<Sender> made = Sender::listen(sender_options_of(options_, options_.interrupted));
    if (absl::IsAlreadyExists(made.status())) return wait_for_no_base(made.status());
    BASCULE_TRY(made.status());
    receiver.reset();  // of an earlier turn
    BASCULE_TRY(turns_.store_key(cat(options_.compatibility_key, kBetween, options_.weights)));
    BASCULE_TRY(made->register_model(options_.tensors, options_.device));
    BASCULE_ASSIGN(WritableSlot slot, made->loan());
    std::vector<MutableTensorView> ordered;
    for (const TensorSpec& spec : options_.tensors) ordered.push_back(*slot.find(spec.name));
    absl::Status filled;
    BASCULE_TRY(caught([&] { filled = options_.fill(ordered); }));
    BASCULE_TRY(annotate(filled, cat("make the base at ", options_.endpoint)));
    BASCULE_TRY(made->publish(std::move(slot)).status());
    BASCULE_ASSIGN(held, made->held());
    BASCULE_TRY(check_held(held, options_));
    sender = *std::move(made);
    return true;
  }

  // A sender has the endpoint, and no process the base: the last of them is just ending, or it is another kind of
  // sender, whose weights change.
  absl::StatusOr<bool> wait_for_no_base(const absl::Status& found) {
    constexpr absl::Duration kEnding = absl::Seconds(5);
    if (!no_base_until_) no_base_until_.emplace(kEnding);
    why_ = message_of(found);
    if (!no_base_until_->passed()) return false;
    return failed_precondition("the base at ", options_.endpoint, ": a sender that holds no base has the endpoint (",
                               why_, "); give another endpoint");
  }

  absl::StatusOr<bool> join() {
    constexpr absl::Duration kTurn = absl::Milliseconds(50);
    no_base_until_.reset();
    BASCULE_TRY(agree());
    if (!receiver) {
      BASCULE_ASSIGN(receiver, Receiver::connect(receiver_options_of(options_)));
    }
    const absl::Status ready = receiver->wait_ready(kTurn);
    if (absl::IsDeadlineExceeded(ready)) {
      why_ = cat("processes have it open, and none answers; one that stands still must go on or end (",
                 message_of(ready), ")");
      return false;
    }
    BASCULE_TRY(annotate(ready, cat("the base at ", options_.endpoint)));
    receiver->commit();
    BASCULE_ASSIGN(held, receiver->held());
    BASCULE_TRY(check_held(held, options_));
    return true;
  }

  // Compares the key of the base that is there. This process keeps it, since it may answer newcomers later.
  absl::Status agree() {
    BASCULE_ASSIGN(const std::string stored, turns_.key());
    const std::size_t between = stored.find(kBetween);
    if (between == std::string::npos)
      return failed_precondition("the base at ", options_.endpoint, ": its file base.open has no key; end the ",
                                 "processes that have it open, or give another endpoint");
    const std::string key = stored.substr(0, between), weights = stored.substr(between + 1);
    const bool same_weights = weights == options_.weights || weights.empty() || options_.weights.empty();
    if (key != options_.compatibility_key || !same_weights)
      return failed_precondition("the base at ", options_.endpoint, " has the compatibility key \"",
                                 cat(key, weights.empty() ? "" : ", ", weights), "\", expected \"", key_of(options_),
                                 "\": it holds another model; end the processes that have it open, or give another ",
                                 "endpoint");
    options_.weights = weights;
    return absl::OkStatus();
  }

  // After two seconds, and when the reason changes.
  void tell() {
    if (why_ == told_ || !silent_until_.passed()) return;
    told_ = why_;
    if (options_.log) options_.log(cat("waiting for the base at ", options_.endpoint, ": ", why_));
  }

  static constexpr std::string_view kBetween{"\0", 1};  // key and weights in the file
  BaseOptions& options_;
  Turns& turns_;
  const Deadline deadline_, silent_until_{absl::Seconds(2)};
  std::optional<Deadline> no_base_until_;
  std::string why_, told_;
};

}  // namespace

absl::StatusOr<Base> Base::open(BaseOptions options) {
  BASCULE_ASSIGN(const Endpoint endpoint, Endpoint::parse(options.endpoint));
  if (endpoint.over_tcp())
    return invalid_argument("the base at ", options.endpoint, ": processes of one host share it; give a folder");
  BASCULE_ASSIGN(const Scheme* const scheme, scheme_for(endpoint, options.scheme));
  if (scheme->on_device != (options.device != kHost))
    return invalid_argument("the base at ", options.endpoint, ": ", scheme->name, " keeps memory ",
                            scheme->on_device ? "on a GPU" : "of the host", ", and this process reads in ",
                            place_name(options.device), "; use ", names_of_schemes(!scheme->on_device));
  if (options.tensors.empty()) return invalid_argument("the base at ", options.endpoint, ": no tensors were given");
  options.name = cat(options.name.empty() ? "process" : options.name, "-", ::getpid());
  if (!options.warn) options.warn = options.log;
  BASCULE_ASSIGN(Turns turns, Turns::in(endpoint.folder, endpoint.own_folder()));
  Opening opening(options, turns);
  BASCULE_TRY(opening.run());
  return Base(std::make_unique<Impl>(std::move(options), std::move(turns), std::move(opening.held),
                                     std::move(opening.sender), std::move(opening.receiver)));
}

Base::Base(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Base::Base(Base&&) noexcept = default;
Base& Base::operator=(Base&&) noexcept = default;
Base::~Base() = default;

const HeldVersion& Base::held() const { return impl_->held; }
std::span<const TensorView> Base::tensors() const { return impl_->tensors; }

const TensorView* Base::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(impl_->tensors, name, {}, &TensorView::name);
  return found == impl_->tensors.end() || found->name != name ? nullptr : &*found;
}

bool Base::made_here() const { return impl_->made_here; }
bool Base::answers() const { return impl_->keeper.answers(); }

}  // namespace bascule::inline v0
