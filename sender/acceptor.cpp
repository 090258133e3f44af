#include <bascule/sender/acceptor.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <cerrno>
#include <chrono>

#include <bascule/transport/caught.h>
#include <bascule/transport/descriptor_limit.h>
#include <bascule/transport/posix/fork_guard.h>
#include <bascule/transport/posix/peer.h>
#include <bascule/transport/posix/private_folder.h>
#include <bascule/transport/status.h>
#include <bascule/transport/wire/unshared_socket.h>

namespace bascule::inline v0 {
namespace {

namespace asio = boost::asio;
constexpr std::chrono::milliseconds kPause{100};  // after a connection could not be accepted

}  // namespace

Acceptor::Acceptor(asio::io_context& io, const Endpoint& endpoint, int folder, std::optional<Token> token, Epoch epoch,
                   OnArrival on_arrival, OnStatusQuery on_status_query, OnRank on_rank, OnRefused on_refused)
    : io_(io),
      endpoint_(endpoint),
      folder_(folder),
      token_(std::move(token)),
      epoch_(epoch),
      on_arrival_(std::move(on_arrival)),
      on_status_query_(std::move(on_status_query)),
      on_rank_(std::move(on_rank)),
      on_refused_(std::move(on_refused)),
      acceptor_(io),
      pause_(io) {}

Acceptor::~Acceptor() {
  stop_listening();
  // If the folder was removed, a later sender may have a socket of that name.
  if (bound_ && !endpoint_.over_tcp() && !socket_file_.missing())
    ::unlinkat(folder_, endpoint_.control_socket().filename().c_str(), 0);
}

absl::Status Acceptor::bind() {
  BASCULE_TRY(endpoint_.over_tcp() ? bind_host() : bind_folder());
  bound_ = true;
  return absl::OkStatus();
}

absl::Status Acceptor::bind_folder() {
  const std::filesystem::path path = endpoint_.control_socket();
  BASCULE_TRY(remove_dead_socket());
  BASCULE_ASSIGN(const std::string through_folder, path_through(folder_, path.filename().native()));
  BASCULE_TRY(listen_at(asio::local::stream_protocol::endpoint(through_folder)));
  socket_file_.add(path);
  return absl::OkStatus();
}

// A dead sender leaves its socket behind. We hold the folder's lock, but a live sender may hold a lock file that was
// removed.
absl::Status Acceptor::remove_dead_socket() {
  const std::filesystem::path path = endpoint_.control_socket();
  const std::string name = path.filename();
  const UniqueFd there(::openat(folder_, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!there && errno == ENOENT) return absl::OkStatus();
  if (!there || ::fstat(there.get(), &status) != 0) return errno_status(errno, cat("look at ", path.string()));
  if (!S_ISSOCK(status.st_mode))
    return failed_precondition(path.string(), " is not a socket: a sender listens under that name; move it away, or ",
                               "choose another endpoint");
  BASCULE_ASSIGN(const std::string through, path_through(there.get()));
  asio::io_context io;
  asio::local::stream_protocol::socket socket(io);
  boost::system::error_code error;
  open_unshared(socket, asio::local::stream_protocol(), error);
  if (!error) socket.non_blocking(true, error);
  if (!error) socket.connect(asio::local::stream_protocol::endpoint(through), error);
  if (!error || error == asio::error::try_again || error == asio::error::no_buffer_space)
    return absl::AlreadyExistsError(cat("another sender listens at ", path.string(),
                                        ", though its sender.lock is gone; stop it, or choose another endpoint"));
  if (error != asio::error::connection_refused) return errno_status(error.value(), cat("connect to ", path.string()));
  ::unlinkat(folder_, name.c_str(), 0);
  return absl::OkStatus();
}

absl::Status Acceptor::bind_host() {
  BASCULE_ASSIGN(tls_, TlsContext::make(Role::kSender, *token_, endpoint_.scheme));
  asio::ip::tcp::resolver resolver(io_);
  boost::system::error_code error;
  const auto addresses =
      resolver.resolve(endpoint_.host, std::to_string(endpoint_.port), asio::ip::resolver_base::passive, error);
  if (const int shortage = error ? why_no_descriptor() : 0)  // which getaddrinfo() does not report
    return errno_status(shortage, cat("look up the host ", endpoint_.host));
  if (error) return unavailable("look up the host ", endpoint_.host, ": ", error.message());
  absl::Status status = unavailable("the host ", endpoint_.host, " has no address");
  for (const auto& address : addresses)  // the first that belongs to this machine
    if (status = listen_at(address.endpoint()); status.ok()) break;
  return status;
}

absl::Status Acceptor::listen_at(const Protocol::endpoint& address) {
  boost::system::error_code error;
  stop_listening();
  {
    ForkGuard guard;
    open_unshared(acceptor_, address.protocol(), error);
    if (!error) guard.keep(acceptor_.native_handle());
  }
  protocol_ = address.protocol();
  // Over TCP the next sender need not wait until the last one's connections have expired.
  if (!error && endpoint_.over_tcp()) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor_.bind(address, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (!error) acceptor_.non_blocking(true, error);
  if (!error) return absl::OkStatus();
  if (endpoint_.over_tcp() && error == asio::error::address_in_use)
    return absl::AlreadyExistsError(
        cat("another program listens at ", endpoint_.place(), "; stop it, or choose another port"));
  return errno_status(
      error.value(), cat("listen at ", endpoint_.over_tcp() ? endpoint_.place() : endpoint_.control_socket().string()));
}

// A forked child does not get the socket, so it accepts no connection for a sender that is gone. A child of posix_spawn
// has it until its program starts, so the socket is also shut down: the next sender must be able to listen at once.
void Acceptor::stop_listening() {
  if (!acceptor_.is_open()) return;
  boost::system::error_code ignored;
  ForkGuard guard;
  ::shutdown(acceptor_.native_handle(), SHUT_RDWR);
  guard.give_up(acceptor_.native_handle());
  acceptor_.close(ignored);
}

void Acceptor::start() { accept_next(); }

void Acceptor::close() {
  stop_listening();
  pause_.cancel();
  for (auto& [number, newcomer] : newcomers_) {
    if (newcomer.handshake) newcomer.handshake->close();
    if (newcomer.channel) newcomer.channel->close();
  }
  newcomers_.clear();
}

void Acceptor::accept_next() {
  static_cast<void>(until_done([this] {
    acceptor_.async_wait(Listener::wait_read, [this](const boost::system::error_code& error) {
      if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
      const absl::Status accepted = caught([&] { return accept(error); });
      accepted.ok() ? accept_next() : pause(accepted);
    });
  }));
}

absl::Status Acceptor::accept(boost::system::error_code error) {
  Protocol::socket socket(io_);
  if (!error) accept_unshared(acceptor_, protocol_, socket, error);
  if (error == asio::error::connection_aborted || error == asio::error::would_block ||
      error == asio::error::interrupted)
    return absl::OkStatus();
  if (error) return errno_status(error.value(), "accept");
  pausing_ = false;
  const std::uint64_t number = next_number_;
  absl::Status received = caught([&] { receive(std::move(socket)); });
  if (!received.ok()) drop(number);
  return received;
}

// Usually this process is out of descriptors or memory. The connection stays in the queue: retrying at once would spin.
void Acceptor::pause(const absl::Status& why) {
  static_cast<void>(caught([&] {
    if (!std::exchange(pausing_, true)) on_refused_(annotate(why, "cannot accept a connection; still trying"));
    if (!newcomers_.empty()) make_room();
  }));
  static_cast<void>(until_done([this] {
    pause_.expires_after(kPause);
    pause_.async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled) accept_next();
    });
  }));
}

void Acceptor::receive(Protocol::socket socket) {
  absl::Status allowed;
  std::string from;
  if (endpoint_.over_tcp()) {
    const int on = 1;  // a round exchanges small messages in turn: each must go out at once
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    from = address_of_peer(socket.native_handle());
  } else {
    allowed = check_peer(socket.native_handle(), ::geteuid());
  }
  if (newcomers_.size() >= share_of_descriptors(kMaxNewcomers, 4)) make_room();
  const std::uint64_t number = next_number_++;
  Newcomer& newcomer = newcomers_
                           .emplace(number, Newcomer{.handshake = nullptr,
                                                     .channel = nullptr,
                                                     .answered = false,
                                                     .from = std::move(from),
                                                     .deadline = asio::steady_timer(io_)})
                           .first->second;
  limit(number);
  if (tls_) return shake_hands(number, std::move(socket));
  newcomer.channel = std::make_shared<Channel>(std::move(socket));
  if (!allowed.ok()) return refuse(number, allowed);
  hear(number);
}

// If this thread stood still, the hello may have come in time; and a long one may still be decoded. (No channel: the
// handshake is not done.)
bool Acceptor::has_come(std::uint64_t number) {
  if (const std::shared_ptr<Channel> channel = newcomers_.at(number).channel) channel->read_queued();
  const auto found = newcomers_.find(number);
  return found == newcomers_.end() || (found->second.channel && found->second.channel->decoding());
}

void Acceptor::limit(std::uint64_t number) {
  asio::steady_timer& deadline = newcomers_.at(number).deadline;
  deadline.expires_after(on_clock(endpoint_.suspect_after));
  deadline.async_wait([this, number](const boost::system::error_code& cancelled) {
    if (cancelled || !newcomers_.contains(number)) return;
    const absl::Status judged = caught([&] {
      if (!has_come(number))
        return refuse(number, unavailable("sent no hello within ", absl::FormatDuration(endpoint_.suspect_after)));
      if (newcomers_.contains(number)) limit(number);
    });
    if (!judged.ok()) drop(number);
  });
}

// The oldest connection makes room, unless its hello has come.
void Acceptor::make_room() {
  const std::uint64_t eldest = newcomers_.begin()->first;
  if (!has_come(eldest))
    refuse(eldest, absl::ResourceExhaustedError(cat(newcomers_.size(), " connections have sent no hello")));
}

void Acceptor::shake_hands(std::uint64_t number, Protocol::socket socket) {
  absl::StatusOr<TlsSession> session = tls_->session();
  if (!session.ok()) return forget(number, session.status());
  Newcomer& newcomer = newcomers_.at(number);
  newcomer.handshake = std::make_shared<TlsHandshake>(std::move(socket), *std::move(session));
  newcomer.handshake->start([this, number](absl::StatusOr<std::shared_ptr<Channel>> channel) {
    if (!channel.ok()) return forget(number, channel.status());
    Newcomer& proved = newcomers_.at(number);
    proved.handshake.reset();
    proved.channel = *std::move(channel);
    hear(number);
  });
}

void Acceptor::hear(std::uint64_t number) {
  const std::shared_ptr<Channel>& channel = newcomers_.at(number).channel;
  channel->decode_by(decoder_);
  channel->start(
      [this, number](Message message, const std::vector<UniqueFd>& descriptors) {
        on_message(number, std::move(message), !descriptors.empty());
      },
      [this, number](const absl::Status& why) {
        if (!caught([&] { refuse(number, why); }).ok()) drop(number);
      });
}

void Acceptor::on_message(std::uint64_t number, Message message, bool with_descriptors) {
  const auto found = newcomers_.find(number);
  if (found == newcomers_.end()) return;
  if (with_descriptors) return refuse(number, invalid_argument(name_of(message), " came with descriptors"));
  if (const auto* query = std::get_if<StatusQuery>(&message)) {
    if (query->protocol != kProtocol)
      return refuse(number, invalid_argument("the status query uses protocol ", query->protocol, ", expected ",
                                             kProtocol, "; run the same version of Bascule on both ends"));
    found->second.answered = true;
    return on_status_query_(*found->second.channel);
  }
  if (const auto* rank = std::get_if<RankHello>(&message)) return on_rank_hello(number, *rank);
  auto* const hello = std::get_if<Hello>(&message);
  if (hello == nullptr)
    return refuse(number, invalid_argument("expected hello as the first message, found ", name_of(message)));
  const std::shared_ptr<Channel> channel = std::move(found->second.channel);
  newcomers_.erase(found);
  on_arrival_(channel, std::move(*hello));
}

// The rank goes on over its own socket; this connection has done its work.
void Acceptor::on_rank_hello(std::uint64_t number, const RankHello& hello) {
  if (endpoint_.over_tcp())
    return refuse(number,
                  failed_precondition("ranks of a sharded trainer share memory, so they run on one host and join "
                                      "at the sender's folder; found rank ",
                                      hello.rank, " over TCP"));
  const absl::StatusOr<ProcessFd> end =
      on_rank_ ? on_rank_(hello)
               : failed_precondition("rank ", hello.rank, " of ", hello.ranks, " (pid ", hello.pid,
                                     ") joins a sender without ranks; give rank 0 the same number of ranks");
  if (!end.ok()) return refuse(number, end.status());
  Newcomer& newcomer = newcomers_.at(number);
  newcomer.answered = true;
  newcomer.channel->send(RankWelcome{.epoch = epoch_}, {end->get()});
}

void Acceptor::refuse(std::uint64_t number, const absl::Status& why) {
  const auto found = newcomers_.find(number);
  if (found == newcomers_.end()) return;
  const bool may_pass = absl::IsUnavailable(why) || absl::IsResourceExhausted(why);
  if (const std::shared_ptr<Channel>& channel = found->second.channel; channel && channel->open())
    channel->send(Refused{.why = std::string(message_of(why)), .final = !may_pass});
  forget(number, why);
}

void Acceptor::forget(std::uint64_t number, const absl::Status& why) {
  const auto found = newcomers_.find(number);
  if (found == newcomers_.end()) return;
  const std::string from = found->second.from;
  const bool answered = found->second.answered;
  drop(number);
  if (!answered) on_refused_(annotate(why, from.empty() ? "a connection" : cat("a connection from ", from)));
}

void Acceptor::drop(std::uint64_t number) noexcept {
  const auto found = newcomers_.find(number);
  if (found == newcomers_.end()) return;
  if (found->second.handshake) found->second.handshake->close();
  if (found->second.channel) found->second.channel->close();
  newcomers_.erase(found);
}

}  // namespace bascule::inline v0
