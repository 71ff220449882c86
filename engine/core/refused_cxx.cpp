/* C++ libraries: ends the process when operator new gets no memory, and on uncaught exceptions that report a
 * refused resource (mostly a thread). */
#include "core/refused.h"

#include <exception>
#include <new>
#include <system_error>

namespace
{

void no_memory()
{
    refused_memory(0);
}

std::terminate_handler before;

void nobody_caught()
{
    if (std::exception_ptr thrown = std::current_exception()) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::bad_alloc &) {
            refused_memory(0);
        } catch (const std::system_error &error) {
            refused_other("a library a thread or another resource", error.what());
        } catch (...) {
        }
    }
    before(); /* no resource was refused: a bug of leat or of a library */
}

} // namespace

extern "C" void refused_init_cxx(void);
void refused_init_cxx(void)
{
    std::set_new_handler(no_memory);
    if (before == nullptr)
        before = std::set_terminate(nobody_caught);
}
