#include <bascule/receiver/receiver.h>

#include <map>
#include <mutex>
#include <unordered_set>
#include <utility>

#include <bascule/receiver/flip_gate.h>
#include <bascule/receiver/session.h>
#include <bascule/schemes/registry.h>
#include <bascule/transport/caught.h>
#include <bascule/transport/device.h>
#include <bascule/transport/endpoint.h>
#include <bascule/transport/own_threads.h>
#include <bascule/transport/status.h>
#include <bascule/transport/threads.h>
#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {

namespace {

ReceiverOptions silenced_by(const Silence& silence, ReceiverOptions options) {
  options.log = unless_silent(unfailing(std::move(options.log)), silence);
  options.warn = unless_silent(unfailing(std::move(options.warn)), silence);
  options.trace = unless_silent(unfailing(std::move(options.trace)), silence);
  options.on_pending = unless_silent(unfailing(std::move(options.on_pending)), silence);
  return options;
}

}  // namespace

struct Receiver::Impl {
  Silence silence = std::make_shared<std::atomic<bool>>(false);
  FlipGate gate;
  bool started = false;  // engine's thread, as all below
  std::optional<LocalVersion> serving;
  bool loading = false;                                   // taken, and not finished
  std::map<SlotId, std::shared_ptr<const Weights>> seen;  // of the epoch that is served

  const bool follows;  // a rank above 0
  const absl::Duration flip_timeout, writer_timeout;
  const std::function<bool()> interrupted;  // may be empty
  const Apply apply;                        // the endpoint's
  const int threads;                        // that copy at the flip
  const bool wants_fused;
  const Scheme& scheme;
  const Stream stream;
  const int device;  // ReceiverOptions::device; kHost: the place of the slots or the targets
  Session session;   // last: its threads use the gate

  Impl(ReceiverOptions options, Endpoint endpoint, std::optional<Token> token, const Scheme& given)
      : follows(options.rank > 0),
        flip_timeout(endpoint.flip_timeout),
        writer_timeout(endpoint.writer_timeout()),
        interrupted(options.interrupted),
        apply(endpoint.apply),
        threads(options.threads),
        wants_fused(!options.fused.empty()),
        scheme(given),
        stream(options.stream),
        device(options.device),
        session(silenced_by(silence, std::move(options)), std::move(endpoint), std::move(token), given, gate) {}

  void start() {
    if (std::exchange(started, true)) return;
    session.start();
    gate.begin();
  }
  void set_loading(bool loads) {
    if (loads != std::exchange(loading, loads)) gate.set_loading(loads);
  }
  Flip flip(AckWhen ack) {
    start();
    if (!gate.pending()) return now(false, false);
    if (follows) return now(false, gate.poisoned());
    const Clock::time_point start = Clock::now();
    bool late = false;
    std::optional<LocalVersion> next = gate.take(Deadline(writer_timeout), late);
    if (late) session.give_up_writer(writer_timeout);
    if (!next) return now(false, gate.poisoned());
    return flip_to(*std::move(next), start, ack);
  }
  Flip follow(Version version, AckWhen ack) {
    start();
    if (version == 0 || loading || (serving && serving->version >= version))
      return now(false, gate.pending() && gate.poisoned());
    const Clock::time_point start = Clock::now();
    std::vector<LocalVersion> dropped;
    bool let_go = false;
    std::optional<LocalVersion> next =
        gate.take(version, Deadline(flip_timeout), dropped, [&] { return let_go = interrupted && interrupted(); });
    session.passed_over(std::move(dropped));
    if (!next && let_go) return now(false, gate.pending() && gate.poisoned());
    if (!next) {
      session.poison(cat("rank 0 serves version ", version, ", which was not prepared here within ",
                         absl::FormatDuration(flip_timeout)));
      return now(false, true);
    }
    return flip_to(*std::move(next), start, ack);
  }
  Flip flip_to(LocalVersion next, Clock::time_point start, AckWhen ack) {
    // After a lost connection the sender may send the version that this worker already serves: that is no flip.
    const bool again = serving && serving->lease.epoch == next.lease.epoch && serving->version == next.version;
    const bool elsewhere = again && serving->slot != next.slot;  // but in another of the scheme's own buffers
    absl::StatusOr<std::shared_ptr<DeviceMark>> mark = nullptr;
    const absl::Status left = caught([&] { mark = session.leave(serving, next); });
    if (!left.ok()) mark = left;
    if (!mark.ok()) {
      session.not_flipped(std::move(next), mark.status());
      return now(false, true);
    }
    if (!again && next.copy && !copy(next)) return now(false, true);
    if (serving && serving->slot.epoch != next.slot.epoch) seen.clear();
    // Tensors that only this map still holds belong to a slot that is gone.
    std::erase_if(seen, [](const auto& slot) { return slot.second.use_count() == 1; });
    // The version was taken: it is neither lost nor given back if memory runs out here.
    static_cast<void>(until_done([&] { seen.insert_or_assign(next.slot, next.weights); }));
    std::optional<LocalVersion> before = std::exchange(serving, std::move(next));
    set_loading(ack == AckWhen::kLoaded && (!again || elsewhere));
    session.flipped(*serving, std::move(before), *std::move(mark), seconds_between(start, Clock::now()),
                    loading ? AckWhen::kLoaded : AckWhen::kFlipped);
    if (session.copier() != nullptr) {  // the weights now lie in the engine's own tensors
      serving->attachment = nullptr;
      serving->copy.reset();
    }
    return now(!again || elsewhere, false);
  }
  // Makes the copy at a flip. Returns false if the tensors are torn.
  bool copy(const LocalVersion& next) {
    Copier& copier = *session.copier();
    const absl::Status copied = caught([&] {
      return copier.copy(*next.attachment->copy_plan(), next.attachment->layout(), next.copy->publication,
                         next.copy->view, static_cast<int>(next.slot.index),
                         {.all = next.copy->check, .parts = next.copy->parts.get()}, copier.flip_pool(),
                         Deadline(flip_timeout));
    });
    if (copied.ok()) return true;
    serving.reset();
    session.torn(next, copied);
    return false;
  }
  Flip now(bool changed, bool poisoned) const {
    Flip flip{.changed = changed, .epoch = 0, .version = 0, .slot = {}, .poisoned = poisoned};
    if (serving) {
      flip.epoch = serving->lease.epoch;
      flip.version = serving->version;
      flip.slot = serving->slot;
    }
    return flip;
  }
};

// Memory that a device may still read when its receiver is destroyed stays mapped and leased: a kernel that reads
// unmapped memory costs the whole process the device, and the sender writes a slot that has no lease.
void Receiver::End::operator()(Impl* impl) const {
  if (impl->session.is_on_own_thread()) {  // in a callback
    *impl->silence = true;
    return end_elsewhere([impl] { End()(impl); });
  }
  std::unique_ptr<Impl> ended(impl);
  if (ended->session.stop()) return;
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<Impl>>();  // never destroyed
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(ended));
}

Receiver::Receiver(Impl* impl) : impl_(impl) {}
Receiver::Receiver(Receiver&&) noexcept = default;
Receiver& Receiver::operator=(Receiver&&) noexcept = default;
Receiver::~Receiver() = default;

absl::StatusOr<Receiver> Receiver::connect(ReceiverOptions options) {
  BASCULE_ASSIGN(Endpoint endpoint, Endpoint::parse(options.endpoint));
  BASCULE_ASSIGN(const Scheme* const scheme, scheme_for(endpoint, options.scheme));
  if (!scheme->make_receiver) return invalid_argument("scheme ", scheme->name, " has no make_receiver");
  if (options.worker.empty())
    return invalid_argument("a worker needs a name, in UTF-8 without control characters, unique at its endpoint");
  BASCULE_TRY(annotate(check_worker_name(options.worker), "worker"));
  BASCULE_TRY(annotate(check_worker_name(options.group), cat("worker ", options.worker, ", group")));
  if (options.threads < 0)
    return invalid_argument("threads: expected 0 (one per core) or more, found ", options.threads);
  if (options.rank >= options.ranks || (options.group.empty() && options.ranks != 1))
    return invalid_argument("worker ", options.worker, " asks for rank ", options.rank, " of ", options.ranks,
                            " in group '", options.group,
                            "'; expected a rank below ranks, and a group's name if ranks is above 1");
  BASCULE_TRY(annotate(check_compatibility_key(options.compatibility_key), cat("worker ", options.worker)));
  std::unordered_set<std::string_view> names;
  for (const FusedOrder& order : options.fused)
    if (order.name.empty() || !is_utf8(order.name) || order.parts.empty() || !names.insert(order.name).second)
      return invalid_argument("worker ", options.worker, ": the fused order \"", order.name,
                              "\" must have a unique name, in UTF-8, and parts");
  for (const FusedOrder& order : options.fused)
    for (const std::string& part : order.parts)
      BASCULE_TRY(annotate(check_tensor_name(part), cat("worker ", options.worker, ", fused order ", order.name)));
  for (const TensorSpec& spec : options.expected) {
    const auto named = [&](const absl::Status& why) {
      return annotate(why, cat("worker ", options.worker, ", expected tensors"));
    };
    BASCULE_TRY(named(check_tensor_name(spec.name)));
    BASCULE_TRY(named(checked_byte_count(spec.name, spec.dtype, spec.shape).status()));
  }
  if (options.device != kHost)
    BASCULE_TRY(annotate(why_no_cuda(), cat("worker ", options.worker, " asks for device ", options.device)));
  if (options.device != kHost && options.stream != nullptr)
    if (absl::Status checked = check_stream(options.device, options.stream); absl::IsInvalidArgument(checked))
      return annotate(checked, cat("worker ", options.worker));
  endpoint.device = options.device;
  BASCULE_ASSIGN(std::optional<Token> token, Token::find(endpoint));
  return starting_threads(cat("worker ", options.worker), [&]() -> absl::StatusOr<Receiver> {
    return Receiver(
        std::make_unique<Impl>(std::move(options), std::move(endpoint), std::move(token), *scheme).release());
  });
}

absl::Status Receiver::register_model(std::vector<TargetTensor> targets, ModelOptions options) {
  if (impl_->started)
    return failed_precondition(
        "register_model: this receiver has greeted already; register before join(), and before the first wait_ready(), "
        "take() or commit()");
  if (impl_->session.copier() != nullptr)
    return failed_precondition("register_model: tensors are registered already; a receiver has one model");
  if (impl_->wants_fused)
    return failed_precondition(
        "register_model: this receiver asked for fused orders, which are for reading in place; give the parts to a "
        "target instead");
  const int place = Copier::place_of(targets);
  if (!targets.empty() && place == kHost && impl_->scheme.on_device && !impl_->scheme.serves_hosts)
    return unimplemented("register_model: the targets lie in host memory and ", impl_->scheme.name,
                         " keeps its slots on a device, from which this version does not copy there; ",
                         impl_->scheme.needs_descriptors ? cat("use ", names_of_schemes(/*on_device=*/false))
                                                         : "give it targets on a GPU");
  if (!targets.empty() && impl_->device != kHost && place != impl_->device)
    return invalid_argument("register_model: the targets lie in ", place_name(place),
                            ", and this receiver was told to read on device ", impl_->device,
                            "; name one device for both");
  BASCULE_ASSIGN(std::unique_ptr<Copier> copier, starting_threads("register_model", [&] {
                   return Copier::make(std::move(targets), options, options.apply.value_or(impl_->apply),
                                       impl_->threads, impl_->stream);
                 }));
  impl_->session.copy_by(std::move(copier));
  return absl::OkStatus();
}

absl::Status Receiver::wait_ready(absl::Duration timeout) { return wait_ready(0, timeout); }

absl::Status Receiver::wait_ready(Version least, absl::Duration timeout) {
  impl_->start();
  return impl_->session.wait_ready(least, Deadline(timeout));
}

void Receiver::join() { impl_->start(); }

bool Receiver::pending() const { return impl_->gate.pending(); }
absl::StatusOr<int> Receiver::pending_fd() { return impl_->gate.descriptor(); }

Flip Receiver::commit() { return impl_->flip(AckWhen::kFlipped); }
Flip Receiver::take() { return impl_->flip(AckWhen::kLoaded); }
Flip Receiver::commit(Version version) { return impl_->follows ? impl_->follow(version, AckWhen::kFlipped) : commit(); }
Flip Receiver::take(Version version) { return impl_->follows ? impl_->follow(version, AckWhen::kLoaded) : take(); }

void Receiver::finish(const absl::Status& loaded) {
  Impl& impl = *impl_;
  if (!impl.loading) return;
  impl.set_loading(false);
  if (loaded.ok()) return impl.session.loaded();
  impl.session.not_loaded(*std::exchange(impl.serving, std::nullopt), loaded);
}

const Weights& Receiver::weights(SlotId slot) const {
  static const Weights none;
  const auto found = impl_->seen.find(slot);
  return found == impl_->seen.end() ? none : *found->second;
}

std::string Receiver::description() const {
  return impl_->serving && impl_->serving->description ? *impl_->serving->description : std::string();
}

std::shared_ptr<const void> Receiver::keep(SlotId slot) const {
  return impl_->serving && impl_->serving->slot == slot ? impl_->serving->memory : nullptr;
}

absl::StatusOr<HeldVersion> Receiver::held() const {
  if (!impl_->serving || !impl_->serving->attachment || impl_->serving->bytes_in_place.empty())
    return failed_precondition("held: expected a version that is served and read in place");
  const LocalVersion& serving = *impl_->serving;
  if (!serving.handle)
    return unimplemented("held: scheme ", impl_->scheme.name, " cannot hand this version's memory on");
  return HeldVersion{.epoch = serving.lease.epoch,
                     .version = serving.version,
                     .layout = serving.attachment->layout(),
                     .digest = serving.digest,
                     .bytes = serving.bytes_in_place,
                     .device = serving.device,
                     .memory = serving.memory,
                     .handle = serving.handle};
}

ReceiverStatus Receiver::status() const { return impl_->session.status(); }

const char* to_string(ReceiverState state) {
  switch (state) {
    case ReceiverState::kJoining: return "joining";
    case ReceiverState::kPending: return "pending";
    case ReceiverState::kServing: return "serving";
    case ReceiverState::kPoisoned: return "poisoned";
    case ReceiverState::kLoading: return "loading";
  }
  return "unknown";
}

}  // namespace bascule::inline v0
