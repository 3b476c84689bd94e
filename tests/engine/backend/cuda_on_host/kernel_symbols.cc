#include "tests/engine/backend/cuda_on_host/kernel_symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

namespace lm::on_host {
namespace {

constexpr char kProgram[] = "/proc/self/exe";

struct Symbol {
  std::string name;
  uintptr_t begin, end;
  bool is_function;
};

// Where the program is loaded, and where its writable part lies.
struct Image {
  uintptr_t base = 0, writable = 0, writable_end = 0;

  Image() {
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* to) {  // the program comes first
          auto* image = static_cast<Image*>(to);
          image->base = info->dlpi_addr;
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr)& part = info->dlpi_phdr[i];
            if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
            image->writable = info->dlpi_addr + part.p_vaddr;
            image->writable_end = image->writable + part.p_memsz;
          }
          return 1;
        },
        this);
  }
};
const Image& TheImage() {
  static const Image image;
  return image;
}

std::vector<Symbol> ReadSymbols() {
  std::ifstream file(kProgram, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(bytes.data());
  const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(bytes.data() + header->e_shoff);
  std::vector<Symbol> symbols;
  for (int s = 0; s < header->e_shnum; ++s) {
    if (sections[s].sh_type != SHT_SYMTAB) continue;
    const char* names = bytes.data() + sections[sections[s].sh_link].sh_offset;
    const auto* entries = reinterpret_cast<const ElfW(Sym)*>(bytes.data() + sections[s].sh_offset);
    for (size_t i = 0; i < sections[s].sh_size / sizeof(*entries); ++i) {
      const ElfW(Sym)& entry = entries[i];
      const int type = ELF64_ST_TYPE(entry.st_info);
      if (entry.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_OBJECT)) continue;
      const uintptr_t begin = TheImage().base + entry.st_value;
      symbols.push_back({names + entry.st_name, begin, begin + entry.st_size, type == STT_FUNC});
    }
  }
  return symbols;
}

std::string Demangled(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

// "void lm::cuda::(anonymous namespace)::NameKernel<(lm::DType)8, 1>(...)" -> "NameKernel<8, 1>"
std::string ShortName(std::string name) {
  for (const char* part :
       {"void ", "(anonymous namespace)::", "(lm::DType)", "lm::cuda::", "lm::"}) {
    for (size_t at; (at = name.find(part)) != std::string::npos;) name.erase(at, std::strlen(part));
  }
  return name.substr(0, name.find('('));
}

}  // namespace

KernelSymbols SymbolsOf(const void* kernel) {
  static const std::vector<Symbol> symbols = ReadSymbols();
  const auto address = reinterpret_cast<uintptr_t>(kernel);
  KernelSymbols found;
  std::string mangled;
  for (const Symbol& symbol : symbols) {
    if (symbol.is_function && symbol.begin == address) mangled = symbol.name;
  }
  if (mangled.empty()) return found;
  found.name = ShortName(Demangled(mangled));
  const std::string prefix = "_ZZ" + mangled.substr(2) + "E";  // a variable of that function
  for (const Symbol& symbol : symbols) {
    if (symbol.is_function || symbol.name.compare(0, prefix.size(), prefix) != 0) continue;
    const std::string name = Demangled(symbol.name);
    found.shared.push_back({name.substr(name.rfind(':') + 1), symbol.begin, symbol.end});
  }
  return found;
}

bool IsVariable(uintptr_t address) {
  return address >= TheImage().writable && address < TheImage().writable_end;
}

std::string LineOf(const void* return_address) {
  // Of the call, which ends before.
  const uintptr_t address = reinterpret_cast<uintptr_t>(return_address) - TheImage().base - 1;
  char command[96];
  std::snprintf(command, sizeof(command), "addr2line -s -e /proc/%d/exe 0x%lx 2>/dev/null",
                static_cast<int>(getpid()), static_cast<unsigned long>(address));
  FILE* pipe = popen(command, "r");
  if (pipe == nullptr) return "";
  char line[256] = "";
  if (std::fgets(line, sizeof(line), pipe) == nullptr) line[0] = 0;
  pclose(pipe);
  line[std::strcspn(line, " \n")] = 0;
  return line[0] == '?' ? "" : line;
}

}  // namespace lm::on_host
