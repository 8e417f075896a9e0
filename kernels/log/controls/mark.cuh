#ifdef MARKS  // the emulator counts these; see kernels/device/mark.py
#define MARK(event) asm volatile("mark." #event ";")
#else
#define MARK(event)
#endif
