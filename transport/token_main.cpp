// bascule-token: makes the token that both ends of a control connection over TCP must know.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <vector>

#include <bascule/transport/status.h>
#include <bascule/transport/wire/token.h>

namespace {

constexpr const char* kUsage =
    "usage: bascule-token [FILE]\n"
    "\n"
    "Makes a token for endpoints with a host and a port: 32 random bytes in hexadecimal digits. Writes it into FILE,\n"
    "a new file that only you can read, or without FILE prints it. Give it to both ends:\n"
    "\n"
    "  bascule-token ~/.bascule-token               then token_file=/home/me/.bascule-token in the endpoint, and a\n"
    "                                               copy of the file (mode 600) on each other machine\n"
    "  export BASCULE_TOKEN=$(bascule-token)        for programs that this shell starts\n"
    "\n"
    "  --help   print this text; also -h\n"
    "\n"
    "exit status: 0 the token was made; 1 it could not be written, or FILE exists already (it is left alone); 2 the\n"
    "arguments are wrong\n";

int complain(const std::string& what, int status) {
  std::fprintf(stderr, "bascule-token: %s\n", what.c_str());
  return status;
}

int print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  return complain(std::string(bascule::message_of(bascule::errno_status(errno, "write to stdout"))), 1);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace bascule;
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f` is an error with a text
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") return print(kUsage);
    if (argument.empty() || argument.starts_with("-"))
      return complain(cat("unknown flag \"", argument, "\"; expected a file, as in: bascule-token ~/.bascule-token"),
                      2);
    files.emplace_back(argument);
  }
  if (files.size() > 1) return complain(cat("expected one file, found ", files.size()), 2);
  if (files.empty()) return print(make_token() + "\n");
  if (const absl::Status made = make_token_file(files.front()); !made.ok())
    return complain(std::string(message_of(made)), 1);
  return 0;
}
